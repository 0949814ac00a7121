//! The model test: random worlds in which people log in, get and lose permissions, are deactivated, while tokens expire, keys
//! change, processes start anew and clocks go wrong; and one rule, told from the truth alone (`law.rs`): **no request that
//! started later than the design's bound after the end of a write is let in, and none that the auth module never let in for that
//! very question.**
//!
//! `a_million_steps_let_nobody_in_too_late` puts requests to the sidecar's own filter in one thread per world, with the auth
//! module of `module.rs` behind it, so every order of events comes from a seed. A seed that failed is played again, and nothing
//! else, by
//!
//! ```text
//! MODEL_SEED=<seed> cargo test --test model -- --nocapture steps
//! ```
//!
//! (worlds marked `crowd: true` fill tables that hash with seeds of their own: they are played twenty times).
//! `MODEL_STEPS=20000000` makes a long run.

#![allow(
    clippy::similar_names,
    clippy::doc_markdown,
    clippy::unused_self,
    clippy::struct_excessive_bools,
    clippy::needless_pass_by_value,
    clippy::match_same_arms,
    clippy::too_many_lines,
    clippy::too_many_arguments,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a model reads best as its rules are written; its seed comes from the environment"
)]

#[path = "../support/bytes.rs"]
mod bytes;
mod dice;
mod law;
mod life;
mod module;
mod plan;
mod requests;
mod token;
mod truth;
mod world;

use law::Bound;
use okapi_auth_sidecar::invalidation::hold::UpstreamRefresh;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use world::{Counts, World};

/// Steps of all worlds together.
const STEPS: u64 = 1_000_000;
/// From so many steps on, every bound must have been met.
const LONG_RUN: u64 = 20_000_000;
/// Steps of one.
const STEPS_OF_A_WORLD: u64 = 10_000;

#[test]
fn a_million_steps_let_nobody_in_too_late() {
    if let Some(seed) = setting("MODEL_SEED") {
        return play_again(seed);
    }
    let steps = setting("MODEL_STEPS").unwrap_or(STEPS);
    let first = RandomState::new().hash_one("first seed") >> 32;
    let worlds = steps.div_ceil(STEPS_OF_A_WORLD);
    eprintln!(
        "model: {worlds} worlds, seeds {first} to {}",
        first + worlds - 1
    );
    let next = AtomicU64::new(0);
    let (sum, failure) = (Mutex::new(Counts::default()), Mutex::new(None));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= worlds || failure.lock().unwrap().is_some() {
                        break;
                    }
                    let seed = first + number;
                    match catch_unwind(AssertUnwindSafe(|| play(seed))) {
                        Ok(counts) => sum.lock().unwrap().add(&counts),
                        Err(_) => *failure.lock().unwrap() = Some(seed),
                    }
                }
            });
        }
    });
    let failure = *failure.lock().unwrap();
    if let Some(seed) = failure {
        panic!(
            "seed {seed} failed; again: MODEL_SEED={seed} cargo test --test model -- --nocapture steps"
        );
    }
    let sum = sum.into_inner().unwrap();
    eprintln!("model: {sum:#?}");
    if steps >= STEPS {
        sum.must_have_met_everything();
    }
}

fn play_again(seed: u64) {
    for _ in 0..20 {
        eprintln!("model: seed {seed}");
        let counts = play(seed);
        eprintln!("model: {counts:#?}");
        if !World::new(seed).plan.crowd {
            break;
        }
    }
}

fn play(seed: u64) -> Counts {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut world = World::new(seed);
        world.live(STEPS_OF_A_WORLD).await;
        world.counts
    })
}

impl Counts {
    fn add(&mut self, other: &Self) {
        let Self {
            steps,
            requests,
            let_in,
            refused,
            trouble,
            hits,
            at_once,
            joined,
            stale,
            flushes,
            bypassed,
            questions,
            refreshes,
            writes,
            too_late,
            tolerated,
        } = self;
        for (mine, others) in [
            (steps, other.steps),
            (requests, other.requests),
            (let_in, other.let_in),
            (refused, other.refused),
            (trouble, other.trouble),
            (hits, other.hits),
            (at_once, other.at_once),
            (joined, other.joined),
            (stale, other.stale),
            (flushes, other.flushes),
            (bypassed, other.bypassed),
            (questions, other.questions),
            (refreshes, other.refreshes),
            (writes, other.writes),
            (tolerated, other.tolerated),
        ] {
            *mine += others;
        }
        for (bound, count) in &other.too_late {
            *too_late.entry(*bound).or_default() += count;
        }
    }

    /// A model that never meets a case would let it pass.
    fn must_have_met_everything(&self) {
        for (what, count) in [
            ("hits", self.hits),
            ("hits without the HTTP library", self.at_once),
            ("joined questions", self.joined),
            ("stale answers", self.stale),
            ("changed keys", self.flushes),
            ("trouble", self.trouble),
            ("refreshes", self.refreshes),
            ("tolerated answers", self.tolerated),
        ] {
            assert!(count > 0, "only {count} {what}");
        }
        for bound in [
            Bound::Never,
            Bound::Expired,
            Bound::SigningKey,
            Bound::User,
            Bound::Permission,
            Bound::PermissionPrompt,
            Bound::Set,
            Bound::SetPrompt,
            Bound::Unseen,
        ] {
            // So rare that a million steps from a random seed now and then do not meet it; a long run always does.
            if bound == Bound::SetPrompt && self.steps < LONG_RUN {
                continue;
            }
            let count = self.too_late.get(&bound).copied().unwrap_or_default();
            assert!(count > 0, "no request was too late by {bound:?}");
        }
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "not a setting of the sidecar: which seed to play again"
)]
fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}
