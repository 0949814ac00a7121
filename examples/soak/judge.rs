//! Samples while the load runs, and the verdict after it.

use crate::process::Process;
use crate::stage::Stage;
use crate::work::CONNECTIONS;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};

/// Between two lines of progress, in seconds.
const LINE: u64 = 10;
/// How far measured and modelled share of hits may be apart: holds that end with a refresh, questions that two ask at
/// once, and answers under way when something is revoked are not modelled to the request.
const HITS_APART: f64 = 0.03;
/// Growth from end to end of the time after warm-up that is noise, in KiB, and a share of what is resident.
const NOISE: f64 = 1_024.0;
const NOISE_SHARE: f64 = 0.05;
/// Connections to the auth module that may be open at once: a rested one per connection of ours, and what restarts leave.
const UPSTREAM_CONNECTIONS: u32 = 4 * CONNECTIONS;
/// For connections to be closed on both sides when the load is over.
const CLOSED_WITHIN: Duration = Duration::from_secs(15);
/// Threads for sweeps end after ten seconds without work; so many more than idle are no leak.
const MORE_THREADS: u64 = 4;

/// What the process takes before the load.
#[derive(Debug)]
pub(crate) struct Idle {
    memory: String,
    open_files: usize,
    threads: u64,
}

impl Idle {
    pub(crate) async fn of(process: &Process) -> Self {
        // Before anything is asked of it: answers to us take memory that is then kept for the next.
        let memory = memory_of(process);
        // The probe's own connection to the auth module, and ours to the admin port.
        settle(process).await;
        Self {
            memory,
            open_files: process.open_files(),
            threads: process.threads(),
        }
    }
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {} open files, {} threads",
            self.memory, self.open_files, self.threads
        )
    }
}

/// Resident memory has in it the pages of the program's own file and of libraries, more than half of it when idle; the
/// proportional one divides those among all that have them mapped.
fn memory_of(process: &Process) -> String {
    format!(
        "{} KiB resident, {} of it written by itself; {} KiB proportional",
        process.resident(),
        process.written(),
        process.proportional()
    )
}

/// Resident memory at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    seconds: f64,
    kib: f64,
}

/// Looks at the process every second until the time is over, and says every ten what it sees.
pub(crate) async fn watch(
    stage: &Arc<Stage>,
    process: &Arc<Process>,
    time: Duration,
) -> Vec<Sample> {
    let began = Instant::now();
    let mut samples = Vec::new();
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut lines = 0;
    while began.elapsed() < time {
        ticks.tick().await;
        let resident = process.resident();
        samples.push(Sample {
            seconds: began.elapsed().as_secs_f64(),
            kib: f64::from(u32::try_from(resident).unwrap_or(u32::MAX)),
        });
        if began.elapsed().as_secs() >= (lines + 1) * LINE {
            lines += 1;
            line(stage, process, began).await;
        }
    }
    samples
}

async fn line(stage: &Stage, process: &Process, began: Instant) {
    let metrics = process.metrics().await;
    let upstream = metrics.value("auth_sidecar_upstream_connections");
    if upstream > f64::from(UPSTREAM_CONNECTIONS) {
        stage.violation(format!("{upstream} connections to the auth module"));
    }
    let open = metrics.value("auth_sidecar_connections");
    if open > f64::from(2 * CONNECTIONS) {
        stage.violation(format!("{open} connections of ours"));
    }
    let sent = stage.sent.load(Ordering::Relaxed);
    println!(
        "{:>5} s  {sent} requests, {:.1} % hits ({:.1} % modelled), {:?}; {} KiB, {} files, {open} + {upstream} connections, {:.0} decisions, {:.0} callers, {} beyond a limit, {} violations",
        began.elapsed().as_secs(),
        100.0 * hits(&metrics) / number(sent),
        100.0 * number(stage.expected_hits.load(Ordering::Relaxed)) / number(sent),
        stage.statuses(),
        process.resident(),
        process.open_files(),
        metrics.value("auth_sidecar_cache_entries"),
        metrics.value("auth_sidecar_cache_callers"),
        stage.beyond_limit_count(),
        stage.violation_count(),
    );
}

fn hits(metrics: &crate::process::Exposition) -> f64 {
    metrics.sum("auth_sidecar_requests_total{outcome=\"hit\"")
}

fn number(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Waits until the process has nothing open that belongs to a request.
async fn settle(process: &Process) -> bool {
    let mut calm = true;
    for gauge in ["connections", "upstream_connections", "upstream_in_flight"] {
        let series = format!("auth_sidecar_{gauge}");
        calm &= process.comes_to(&series, 0.0, CLOSED_WITHIN).await;
    }
    calm
}

/// What must hold when the load is over; ends the process.
pub(crate) async fn judge(stage: &Stage, process: Arc<Process>, idle: &Idle, samples: &[Sample]) {
    if !settle(&process).await {
        stage.violation("connections or calls are left over".to_owned());
    }
    leftovers(stage, &process, idle);
    counts(stage, &process).await;
    limits(stage);
    memory(stage, samples);
    let Ok(mut process) = Arc::try_unwrap(process) else {
        return stage.violation("somebody still looks at the process".to_owned());
    };
    process.signal();
    match process.ended().await {
        Some(status) if status.success() => {}
        Some(status) => stage.violation(format!("it ended with {status}")),
        None => stage.violation("it did not end when told to".to_owned()),
    }
}

fn leftovers(stage: &Stage, process: &Process, idle: &Idle) {
    let (files, threads) = (process.open_files(), process.threads());
    println!(
        "after: {}, {files} open files, {threads} threads",
        memory_of(process)
    );
    if files > idle.open_files + 1 {
        stage.violation(format!(
            "{files} open files, {} before the load",
            idle.open_files
        ));
    }
    if threads > idle.threads + MORE_THREADS {
        stage.violation(format!(
            "{threads} threads, {} before the load",
            idle.threads
        ));
    }
}

async fn counts(stage: &Stage, process: &Process) {
    let metrics = process.metrics().await;
    let sent = number(stage.sent.load(Ordering::Relaxed));
    let counted = metrics.sum("auth_sidecar_requests_total{")
        - metrics.sum("auth_sidecar_requests_total{outcome=\"refreshed\"");
    if (counted - sent).abs() > 0.5 {
        stage.violation(format!("{sent} requests were sent, {counted} counted"));
    }
    let (measured, modelled) = (
        hits(&metrics) / sent,
        number(stage.expected_hits.load(Ordering::Relaxed)) / sent,
    );
    println!(
        "hits: {:.2} % measured, {:.2} % modelled",
        100.0 * measured,
        100.0 * modelled
    );
    if (measured - modelled).abs() > HITS_APART {
        stage.violation(format!(
            "{measured:.4} of the requests were hits, the model says {modelled:.4}"
        ));
    }
}

/// What came of writes that took longer than `REVOCATION_HOLD`.
fn limits(stage: &Stage) {
    let writes = stage.writes();
    println!(
        "writes: {}, the longest took {:.3?}, {} longer than the hold; {} grants beyond the bound that these lost",
        writes.all,
        writes.longest,
        writes.late,
        stage.beyond_limit_count()
    );
    for what in stage.beyond_limits() {
        println!("BEYOND A LIMIT: {what}");
    }
    if stage.late_writes && stage.beyond_limit_count() == 0 {
        stage.violation("late writes led to no grant beyond their bound".to_owned());
    }
}

/// A straight line through the samples after warm-up (the first half of short runs, five minutes of long ones): its
/// rise from end to end must be noise.
fn memory(stage: &Stage, samples: &[Sample]) {
    let last = samples.last().map_or(0.0, |sample| sample.seconds);
    let warm = (last / 2.0).min(300.0);
    let after: Vec<_> = samples
        .iter()
        .filter(|sample| sample.seconds >= warm)
        .collect();
    let count = number(after.len() as u64);
    let mean =
        |of: &dyn Fn(&Sample) -> f64| after.iter().map(|sample| of(sample)).sum::<f64>() / count;
    let (middle, kib) = (mean(&|sample| sample.seconds), mean(&|sample| sample.kib));
    let along = mean(&|sample| (sample.seconds - middle).powi(2));
    let slope = mean(&|sample| (sample.seconds - middle) * (sample.kib - kib)) / along;
    let growth = slope * (last - warm);
    println!(
        "memory: {kib:.0} KiB on average after {warm:.0} s, {growth:+.0} KiB from there to the end ({:+.1} KiB a minute)",
        slope * 60.0
    );
    if growth > NOISE + NOISE_SHARE * kib {
        stage.violation(format!(
            "resident memory grew by {growth:.0} KiB after warm-up"
        ));
    }
}
