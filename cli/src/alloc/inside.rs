//! The verbs of a batch job: it claims its intent, and reports its end.

use allocation::{Claim, How, Intent, keys};
use clap::Args;
use client::Client;
use proto::wire::MemberPhase;
use verb::Context;
use verb::errors::{Done, Exit, Failure};

use crate::alloc::records::Records;
use crate::alloc::round::now_ms;

#[derive(Args, Debug)]
pub(crate) struct ClaimArgs {
    queue: String,
    number: u64,
    #[arg(long, value_name = "ID")]
    job: String,
    // Of scripts of earlier versions. A node says itself what it offers.
    #[arg(long, default_value_t = 0)]
    cpus: u32,
}

#[derive(Args, Debug)]
pub(crate) struct EndedArgs {
    queue: String,
    number: u64,
    #[arg(long, value_name = "ID")]
    job: String,
    /// The exit code of its nodes
    #[arg(long)]
    code: i32,
}

/// The answer to a batch job that must end at once.
const TAKEN: &str = "taken";

pub(super) async fn claim(context: &Context, args: &ClaimArgs) -> Done {
    let client = context.connect().await?;
    let records = Records::new(&client)?;
    let is_queue = records.names().await?.contains(&args.queue);
    let key = keys::intent(&args.queue, args.number);
    let claimed = |intent: &Intent| intent.claim(&args.job, args.cpus, now_ms(), None);
    // The last try has written the record, so its claim is the answer.
    let why = std::cell::RefCell::new(None);
    let change = |intent: Option<&Intent>| {
        let (changed, refused) = match intent.filter(|_| is_queue).map(claimed) {
            Some(Claim::Works(intent)) => (Some(intent), None),
            Some(Claim::Ends(intent, why)) => (Some(intent), Some(why)),
            None => (None, Some("its queue was removed".to_owned())),
        };
        *why.borrow_mut() = refused;
        Ok(changed)
    };
    records.change(&key, change).await?;
    if let Some(why) = why.into_inner() {
        context.output.note(&format!("this batch job ends: {why}"));
        context.output.raw_line(TAKEN)?;
        return Ok(Exit::Ok);
    }
    context.output.raw_line(&address(&client).await?)?;
    Ok(Exit::Ok)
}

/// An address by which nodes join: of a keeper if there is one, since it stays.
async fn address(client: &Client) -> Result<String, Failure> {
    let map = client.raw().map();
    let up = map.members.iter().filter(|member| member.phase() == MemberPhase::Up);
    let known = up.filter(|member| !member.address.is_empty());
    let best = known.min_by_key(|member| (!member.keeper, member.slow, member.node));
    let best = best.ok_or_else(|| Failure::lost("no node of the cluster is up"))?;
    Ok(best.address.clone())
}

pub(super) async fn ended(context: &Context, args: &EndedArgs) -> Done {
    let client = context.connect().await?;
    let records = Records::new(&client)?;
    let how = if args.code == 0 { How::Completed } else { How::Failed };
    let key = keys::intent(&args.queue, args.number);
    let change =
        |intent: Option<&Intent>| Ok(intent.and_then(|it| it.ended(&args.job, how, now_ms())));
    records.change(&key, change).await?;
    Ok(Exit::Ok)
}
