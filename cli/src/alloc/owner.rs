//! The owner inside a node: a thread beside it that does a round every few seconds.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use allocation::System;
use client::Client;
use verb::errors::Failure;

use crate::alloc::calls;
use crate::alloc::round::{Identity, Site};

/// The time between two rounds.
const ROUND_EVERY: Duration = Duration::from_secs(5);
/// The time between two looks for a queue or a lapsed lease.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Starts the thread, which ends at once where no batch system is installed. `say` gets what it
/// does.
pub(crate) fn start(dir: &Path, node: u32, incarnation: u32, say: fn(&str)) {
    let (dir, name) = (dir.to_owned(), format!("n{node}"));
    let identity = Identity { name: name.clone(), incarnation };
    let body = move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        runtime.block_on(live(dir, identity, say));
    };
    // Without the thread another node is the owner.
    let _ = std::thread::Builder::new().name(format!("{name}-alloc")).spawn(body);
}

async fn live(dir: PathBuf, identity: Identity, say: fn(&str)) {
    let mut systems = System::ALL.to_vec();
    systems.retain(|&system| calls::is_installed(system));
    if systems.is_empty() {
        return;
    }
    let (mut last_error, mut said) = (String::new(), String::new());
    loop {
        let Err(failure) = work(&dir, &systems, &identity, say).await;
        // The cluster may form only later: an error that stays is reported, once.
        if failure.message == last_error && failure.message != said {
            say(&format!("allocations: {}", failure.message));
            failure.message.clone_into(&mut said);
        }
        last_error = failure.message;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Does rounds until something fails.
async fn work(
    dir: &Path,
    systems: &[System],
    identity: &Identity,
    say: fn(&str),
) -> Result<std::convert::Infallible, Failure> {
    let client = Client::connect(dir).await?;
    let mut sites = Vec::new();
    for &system in systems {
        sites.push(Site::new(&client, dir, system, identity.clone())?);
    }
    let mut may_submit = BTreeSet::new();
    loop {
        let mut is_owner = false;
        for site in &mut sites {
            // No program of a batch system runs before there is a queue of it.
            if !site.is_needed().await? {
                continue;
            }
            if may_submit.contains(&site.system) || calls::may_submit(site.system).await {
                may_submit.insert(site.system);
                let system = site.system;
                site.round(&mut |line| say(&format!("allocations of {system}: {line}"))).await;
                is_owner |= site.holds_lease();
            }
        }
        tokio::time::sleep(if is_owner { ROUND_EVERY } else { LOOK_EVERY }).await;
    }
}
