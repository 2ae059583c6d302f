//! A node of an allocation notes what it offers, so that its queue learns it.

use std::path::Path;
use std::time::Duration;

use allocation::backend::ALLOCATION_VARIABLE;
use allocation::{Intent, Learned, keys};
use client::Client;
use proto::wire::MemberPhase;
use verb::errors::Failure;

use crate::alloc::offers;
use crate::alloc::records::Records;

const TRIED_EVERY: Duration = Duration::from_secs(1);

/// Starts a thread that ends when the offer is noted. A node without an allocation has none.
pub(crate) fn start(dir: &Path, node: u32) {
    let own = std::env::var(ALLOCATION_VARIABLE).unwrap_or_default();
    let Some((queue, number)) = allocation_of(&own) else { return };
    let dir = dir.to_owned();
    let body = move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        runtime.block_on(async {
            // The node may not be up yet.
            while !note(&dir, node, &queue, number).await.unwrap_or(false) {
                tokio::time::sleep(TRIED_EVERY).await;
            }
        });
    };
    // Without the thread the queue learns from another node.
    let _ = std::thread::Builder::new().name(format!("n{node}-offer")).spawn(body);
}

/// `QUEUE/NUMBER`.
fn allocation_of(text: &str) -> Option<(String, u64)> {
    let (queue, number) = text.split_once('/')?;
    Some((queue.to_owned(), number.parse().ok()?))
}

/// False: the map does not show the node yet.
async fn note(dir: &Path, node: u32, queue: &str, number: u64) -> Result<bool, Failure> {
    let client = Client::connect(dir).await?;
    let map = client.raw().map();
    let own = map.members.iter().find(|member| member.node == node);
    let own = own.filter(|member| member.phase() == MemberPhase::Up);
    let Some(offer) = own.and_then(offers::offer) else { return Ok(false) };
    let offer = Learned::of(&offer);
    let noted = |intent: Option<&Intent>| Ok(intent.and_then(|intent| intent.with_offer(&offer)));
    Records::new(&client)?.change(&keys::intent(queue, number), noted).await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_of_a_node_names_its_allocation() {
        assert_eq!(allocation_of("fast/12"), Some(("fast".to_owned(), 12)));
        assert!(["", "fast", "fast/", "fast/x"].iter().all(|text| allocation_of(text).is_none()));
    }
}
