//! `starling alloc tick`: one round of an owner that does not stay.

use allocation::System;
use client::host_name;
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure};

use crate::alloc::calls;
use crate::alloc::records::Records;
use crate::alloc::round::{Identity, Site};

#[derive(Serialize)]
struct Ticked {
    sites: Vec<TickedSite>,
}

#[derive(Serialize)]
struct TickedSite {
    site: System,
    /// The round was done here. Else another owner does it.
    done: bool,
    /// The other owner.
    owner: Option<String>,
    log: Vec<String>,
}

pub(super) async fn run(context: &Context) -> Done {
    let dir = context.dir()?;
    let client = context.connect().await?;
    let records = Records::new(&client)?;
    let queues = records.queues().await?;
    let identity =
        Identity { name: format!("tick on {}", host_name()), incarnation: std::process::id() };
    let mut ticked = Vec::new();
    for system in System::ALL {
        if !queues.iter().any(|queue| queue.config.system == system) {
            continue;
        }
        if !calls::may_submit(system).await {
            return Err(Failure::refused(format!(
                "this machine cannot submit to {system}: {} does not work here",
                system.submitter()
            )));
        }
        let mut site = Site::new(&client, &dir, system, identity.clone())?;
        let mut log = Vec::new();
        site.round(&mut |line| log.push(line.to_owned())).await;
        let done = site.holds_lease();
        let mut owner = None;
        if done {
            site.give_up_lease().await?;
        } else {
            owner = records.lease(system).await?.map(|lease| lease.owner);
        }
        ticked.push(TickedSite { site: system, done, owner, log });
    }
    if context.output.json {
        context.output.json(&Ticked { sites: ticked })?;
        return Ok(Exit::Ok);
    }
    for site in ticked {
        if let Some(owner) = site.owner {
            context.output.line(&format!("{}: {owner} is the owner", site.site))?;
        }
        for line in site.log {
            context.output.line(&format!("{}: {line}", site.site))?;
        }
    }
    Ok(Exit::Ok)
}
