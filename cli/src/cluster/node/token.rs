//! `starling token`: admits a machine that does not share the instance's directory.

use std::time::Duration;

use clap::{Args, Subcommand};
use client::{Instance, Keyring};
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure};
use verb::units::Timespan;

/// The longest validity of a token.
const TOKEN_LIFETIME_MAX: Duration = Duration::from_secs(86_400);

#[derive(Subcommand, Debug)]
pub(crate) enum TokenVerb {
    /// Make a token, with which one node gets the instance's keys once
    Make(MakeArgs),
}

#[derive(Args, Debug)]
pub(crate) struct MakeArgs {
    /// Validity of the token, at most a day
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    expires: Timespan,
}

#[derive(Serialize)]
struct NewToken {
    token: String,
    expires_s: u64,
    /// The present addresses of the instance's nodes; any of them accepts the token.
    addresses: Vec<String>,
}

pub(crate) fn run(context: &Context, verb: &TokenVerb) -> Done {
    match verb {
        TokenVerb::Make(args) => make(context, args.expires.0),
    }
}

fn make(context: &Context, life: Duration) -> Done {
    if life.is_zero() || life > TOKEN_LIFETIME_MAX {
        let hours = TOKEN_LIFETIME_MAX.as_secs() / 3600;
        return Err(Failure::usage(format!("--expires is more than nothing and at most {hours}h")));
    }
    let dir = context.dir()?;
    let instance = Instance::new(&dir);
    if instance.cluster()?.insecure {
        let text = format!("the cluster of {} was made with --insecure", dir.display());
        return Err(Failure::refused(text).hint("it accepts any node; it has no keys"));
    }
    let keyring = Keyring::of_instance(&dir);
    let made = keyring
        .authority()
        .and_then(|authority| keyring.tokens().make(authority.fingerprint(), life));
    let token = made.map_err(|error| {
        Failure::refused(error.to_string()).hint("run this where a node of the instance runs")
    })?;
    let lists: Vec<String> = instance.addresses().into_values().map(|it| it.address).collect();
    let each = |list: &String| list.split(',').map(str::to_owned).collect::<Vec<_>>();
    let addresses = lists.iter().flat_map(each).collect();
    let made = NewToken { token: token.to_string(), expires_s: life.as_secs(), addresses };
    if context.output.json {
        context.output.json(&made)?;
    } else {
        context.output.line(&made.token)?;
        // All addresses of one node: the other machine tries them in turn.
        let address = lists.first().map_or("ADDR", String::as_str);
        context.output.note(&format!(
            "on the other machine: STARLING_TOKEN=TOKEN starling node --join {address} \
             --listen ADDR --expect N --rank R"
        ));
    }
    Ok(Exit::Ok)
}
