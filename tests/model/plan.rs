//! What one seed's world is like: the sidecar's settings, how slow things are, what happens how often.

use crate::dice::Dice;
use okapi_auth_sidecar::Config;
use okapi_auth_sidecar::config::PREFIX;
use okapi_auth_sidecar::invalidation::hold::UpstreamRefresh;

/// Milliseconds; as a point in time, since the world's start.
pub(crate) type Millis = u64;

/// mod-permissions' memory of permission sets.
pub(crate) const SET_MEMORY: Millis = 30_000;
/// mod-authtoken's memory of what a token's own permission sets hold.
pub(crate) const TOKEN_SET_MEMORY: Millis = 300_000;
/// During a hold, nobody joins a question older than this.
pub(crate) const JOIN: Millis = 1_000;

/// What the machine's clocks do to the sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clocks {
    Steady,
    /// Now and then the machine is suspended: only the wall clock goes on.
    Suspended,
    /// Now and then somebody sets the wall clock.
    Stepped,
}

/// One world.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) refresh: UpstreamRefresh,
    pub(crate) listen: bool,
    /// How many mod-authtoken stand behind the address.
    pub(crate) replicas: usize,
    pub(crate) ttl: Millis,
    pub(crate) refresh_ahead: &'static str,
    pub(crate) stale: Millis,
    pub(crate) skew: Millis,
    pub(crate) hold: Millis,
    pub(crate) user_memory: Millis,
    pub(crate) permission_memory: Millis,
    pub(crate) key_scope: &'static str,
    /// So many users and tokens that rows and decisions are evicted.
    pub(crate) crowd: bool,
    /// Whether upstream fails now and then.
    pub(crate) trouble: bool,
    pub(crate) clocks: Clocks,
    /// Mean time between two steps.
    pub(crate) tempo: Millis,
    /// Mean time between two announced writes.
    pub(crate) between_writes: Millis,
    /// Whether most writes change permission sets.
    pub(crate) sets: bool,
    /// Longest time between a look-up's reading of the truth and mod-authtoken's remembering it, and before reading.
    pub(crate) look_up: Millis,
    /// Longest way of an answer.
    pub(crate) way: Millis,
}

impl Plan {
    /// A seed's plan, by chance; every fifth is a busy tenant with a single quick auth module and few changes, where the
    /// shortest bounds apply.
    pub(crate) fn draw(seed: u64, dice: &mut Dice) -> Self {
        let plan = Self::any(dice);
        if !seed.is_multiple_of(5) {
            return plan;
        }
        Self {
            refresh: UpstreamRefresh::One,
            listen: true,
            replicas: 1,
            crowd: false,
            trouble: false,
            stale: 0,
            tempo: 40,
            between_writes: 60_000,
            sets: true,
            look_up: 10,
            way: 30,
            ..plan
        }
    }

    fn any(dice: &mut Dice) -> Self {
        let refresh = dice.pick(&[
            UpstreamRefresh::One,
            UpstreamRefresh::One,
            UpstreamRefresh::Many,
            UpstreamRefresh::Off,
        ]);
        let (look_up, way) = dice.pick(&[(10, 30), (10, 30), (100, 500), (400, 7_500)]);
        let clocks = dice.pick(&[
            Clocks::Steady,
            Clocks::Steady,
            Clocks::Suspended,
            Clocks::Stepped,
        ]);
        let trouble = dice.per_mille(300);
        let tempo = dice.pick(&[15, 50, 200, 1_000]);
        Self {
            refresh,
            listen: dice.per_mille(850),
            replicas: match refresh {
                UpstreamRefresh::One => 1,
                UpstreamRefresh::Many | UpstreamRefresh::Off => 1 + dice.index(3),
            },
            ttl: dice.pick(&[5_000, 30_000, 60_000, 60_000, 300_000]),
            refresh_ahead: dice.pick(&["0.8", "0.3", "1"]),
            stale: if trouble { dice.pick(&[0, 20_000]) } else { 0 },
            skew: dice.pick(&[0, 0, 2_000]),
            hold: dice.pick(&[2_000, 5_000, 5_000]),
            user_memory: dice.pick(&[5_000, 60_000, 60_000]),
            permission_memory: dice.pick(&[20_000, 60_000, 60_000]),
            key_scope: dice.pick(&["permissions", "permissions", "request"]),
            crowd: dice.per_mille(150),
            trouble,
            clocks,
            tempo,
            between_writes: dice.pick(&[20 * tempo, 30_000, 100_000, 300_000]),
            sets: false,
            look_up,
            way,
        }
    }

    /// The longest that a question is on its way: up to three look-ups, then the answer's way.
    pub(crate) fn longest_question(&self) -> Millis {
        3 * 2 * self.look_up + self.way
    }

    pub(crate) fn config(&self) -> Config {
        let millis = |value: Millis| format!("{value}ms");
        let refresh = match self.refresh {
            UpstreamRefresh::One => "one",
            UpstreamRefresh::Many => "many",
            UpstreamRefresh::Off => "off",
        };
        let pairs = [
            ("UPSTREAM_URL", "http://mod-authtoken:8081".to_owned()),
            ("CACHE_TTL", millis(self.ttl)),
            ("CACHE_TTL_JITTER", "0".to_owned()),
            ("CACHE_REFRESH_AHEAD", self.refresh_ahead.to_owned()),
            ("CACHE_STALE_IF_ERROR", millis(self.stale)),
            ("EXPIRY_SKEW", millis(self.skew)),
            ("CACHE_KEY_SCOPE", self.key_scope.to_owned()),
            (
                "CACHE_MAX_BYTES",
                if self.crowd { "1MiB" } else { "8MiB" }.to_owned(),
            ),
            ("REVOCATION_LISTEN", self.listen.to_string()),
            ("REVOCATION_HOLD", millis(self.hold)),
            ("REVOCATION_UPSTREAM_REFRESH", refresh.to_owned()),
            ("UPSTREAM_USER_CACHE", millis(self.user_memory)),
            ("UPSTREAM_PERMISSION_CACHE", millis(self.permission_memory)),
        ];
        Config::from_pairs(pairs.map(|(name, value)| (format!("{PREFIX}{name}"), value)))
            .unwrap_or_else(|errors| panic!("the plan's settings are wrong: {errors}"))
    }
}
