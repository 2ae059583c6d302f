//! The progress line of a job. Drawn only on stderr, if that is a terminal.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::Client;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use proto::wire::JobState;
use verb::output::{Output, say};

use crate::views::jobs;
use crate::views::pace::Pace;

/// The interval at which the nodes are asked for the number of running tasks, if a person watches.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Queries the number of running tasks.
    looker: Option<tokio::task::JoinHandle<()>>,
    /// The task of the last printed stall.
    stalled: AtomicU64,
    counts: Arc<Mutex<Counts>>,
}

/// The numbers behind the line.
#[derive(Debug, Default)]
struct Counts {
    pace: Pace,
    failed: u64,
}

impl Counts {
    fn show(&self, bar: &ProgressBar) {
        let failed = match self.failed {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        let total = bar.length().unwrap_or(0);
        let pace = self.pace.text(bar.elapsed().as_secs_f64(), total);
        bar.set_prefix(format!("{failed}{pace}"));
    }
}

impl Progress {
    /// Must be called within the runtime of the client.
    pub(crate) fn start(output: &Output, client: &Client, total: u64) -> Self {
        if !output.progress {
            let (bar, stalled) = (ProgressBar::hidden(), AtomicU64::new(0));
            return Self { bar, looker: None, stalled, counts: Arc::default() };
        }
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        let style = "{bar:28} {human_pos}/{human_len} tasks, {msg}{prefix}";
        let style = ProgressStyle::with_template(style).expect("the template is well formed");
        bar.set_style(style);
        bar.set_message("0 running");
        let counts = Arc::default();
        let looker = tokio::spawn(look(client.clone(), bar.clone(), Arc::clone(&counts)));
        Self { bar, looker: Some(looker), stalled: AtomicU64::new(0), counts }
    }

    pub(crate) fn show(&self, state: &JobState) {
        let sum = state.sum.clone().unwrap_or_default();
        self.bar.set_length(state.total);
        let ended = sum.done + sum.failed + sum.cancelled + sum.skipped;
        self.bar.set_position(ended);
        if self.looker.is_some() {
            let mut counts = self.counts.lock().expect("no holder panics");
            counts.failed = sum.failed;
            counts.pace.push(self.bar.elapsed().as_secs_f64(), ended);
            counts.show(&self.bar);
        }
        self.tell_stall(state);
    }

    /// Prints a stall of the job once, even without a progress line.
    fn tell_stall(&self, state: &JobState) {
        let task = state.stall.as_ref().map_or(0, |stall| stall.local + 1);
        if self.stalled.swap(task, Ordering::Relaxed) != task
            && let Some(stall) = jobs::stall_line(state)
        {
            self.bar.suspend(|| say(&format!("warning: job {}: {stall}", state.job)));
        }
    }

    /// Removes the line.
    pub(crate) fn end(mut self) {
        self.clear();
    }

    fn clear(&mut self) {
        if let Some(looker) = self.looker.take() {
            looker.abort();
        }
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

async fn look(client: Client, bar: ProgressBar, counts: Arc<Mutex<Counts>>) {
    loop {
        let states = client.raw().node_states(LOOK_EVERY).await;
        let running: u64 =
            states.iter().filter_map(|(_, state)| Some(state.as_ref().ok()?.running)).sum();
        bar.set_message(format!("{running} running"));
        // Without news the end moves away.
        counts.lock().expect("no holder panics").show(&bar);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
