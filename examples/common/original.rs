//! What FOLIO and Apache Knox published, to be set beside our own figures.
//!
//! FOLIO: wiki page "MODAT-80/83 - Auth Performance Improvements" (check-out `co_test02_7` of the baseline, its theory, and the
//! test with 8 users). Knox: the pull requests of KNOX-2134 and KNOX-2136.

use std::time::Duration;

/// A check-out or check-in as FOLIO's page prints it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Breakdown {
    /// Calls of the auth module.
    pub(crate) calls: u32,
    /// The whole request.
    pub(crate) total: Duration,
    /// Time on calls of the auth module.
    pub(crate) auth: Duration,
    /// Of that, in the module.
    pub(crate) module: Duration,
    /// Of that, on the network.
    pub(crate) network: Duration,
}

impl Breakdown {
    /// Share of the time that was spent on calls of the auth module, 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        self.auth.as_secs_f64() / self.total.as_secs_f64()
    }
}

/// The check-out as measured.
pub(crate) const CHECK_OUT: Breakdown = Breakdown {
    calls: 33,
    total: Duration::from_micros(384_930),
    auth: Duration::from_micros(198_590),
    module: Duration::from_millis(159),
    network: Duration::from_micros(39_590),
};

/// The check-out as it was thought it could become.
pub(crate) const THEORY: Breakdown = Breakdown {
    calls: 1,
    total: Duration::from_micros(192_260),
    auth: Duration::from_micros(5_920),
    module: Duration::from_millis(5),
    network: Duration::from_micros(920),
};

/// Seconds of a check-in with 8 users, without and with the cache that was tried in Okapi.
pub(crate) const CHECK_IN_8: (f64, f64) = (1.024, 0.729);
/// The same of a check-out.
pub(crate) const CHECK_OUT_8: (f64, f64) = (1.812, 1.364);
/// The auth module's processor time with the cache, as a share of that without.
pub(crate) const MODULE_PROCESSOR_8: f64 = 0.25;

/// What a module did for each call besides auth: what is left of the check-out, by the number of its calls.
pub(crate) fn module_time() -> Duration {
    CHECK_OUT.total.saturating_sub(CHECK_OUT.auth) / CHECK_OUT.calls
}

/// Milliseconds for adding 200 aliases to Knox and getting them again, without and with its cache (KNOX-2134).
pub(crate) const KNOX_200: [[u32; 10]; 2] = [
    [
        30_841, 31_335, 32_762, 31_646, 31_736, 31_641, 31_204, 34_219, 33_720, 33_297,
    ],
    [
        16_715, 16_265, 17_469, 17_312, 17_482, 20_990, 17_343, 19_637, 19_240, 17_705,
    ],
];
/// What was gained at 200 and 500 aliases in five rounds, in percent, from and to (KNOX-2136).
pub(crate) const KNOX_GAIN: (u32, u32) = (40, 45);
