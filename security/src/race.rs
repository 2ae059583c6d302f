/*!
Chooses one of several addresses of a node. Clients and nodes use it for all connections.

A caller tries the addresses one after another: the next one after a short delay, or as soon as one
fails. Attempts run in parallel. The first successful connection is used, and the others are
dropped. Success includes the TLS handshake, so a process of another cluster counts like an address
without an answer.

The last successful address is tried first the next time. An address that this machine has too is
tried last if the node has others. For example, both machines may have the same address on a
container bridge, and it then leads to this machine only.
*/

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use proto::limits;
use tokio::task::JoinSet;

use crate::{interfaces, tls};
use proto::Span;

/// Threads that connect to the addresses of a node give up after this.
const CONNECT_RACE_TIMEOUT: Duration = Duration::from_secs(30);

/// The next address of a node is tried after this delay, while earlier ones have not answered.
const NEXT_ADDRESS_AFTER: Span = Span::from_millis(100);
/// The number of good addresses that a process remembers.
const ADDRESSES_GOOD_MAX: usize = 4096;

/// Addresses that were successful, with the order of last use (larger is later).
static GOOD: Mutex<BTreeMap<IpAddr, u64>> = Mutex::new(BTreeMap::new());

fn good<T>(look: impl FnOnce(&mut BTreeMap<IpAddr, u64>) -> T) -> T {
    look(&mut GOOD.lock().unwrap_or_else(PoisonError::into_inner))
}

fn note_good(address: SocketAddr) {
    good(|known| {
        let next = known.values().max().map_or(0, |last| last + 1);
        known.insert(address.ip(), next);
        if known.len() > ADDRESSES_GOOD_MAX {
            let oldest = known.iter().min_by_key(|(_, at)| **at).map(|(ip, _)| *ip);
            oldest.map(|ip| known.remove(&ip));
        }
    });
}

fn note_bad(address: SocketAddr) {
    good(|known| known.remove(&address.ip()));
}

/// The addresses in a list, separated by commas.
pub fn each(addresses: &str) -> impl Iterator<Item = &str> {
    addresses.split(',').map(str::trim).take(limits::ADDRESSES_MAX)
}

/// Parses the addresses of a list. An error if one of them is invalid.
pub fn parse(addresses: &str) -> Result<Vec<SocketAddr>, String> {
    let parse = |it: &str| it.parse().map_err(|_| format!("'{it}' is no address"));
    each(addresses).map(parse).collect()
}

/// The order in which to try the addresses.
fn in_order(candidates: Vec<SocketAddr>) -> Vec<SocketAddr> {
    if candidates.len() < 2 {
        return candidates;
    }
    let own = interfaces::own();
    good(|known| sorted(candidates, &own, known))
}

fn sorted(
    mut candidates: Vec<SocketAddr>,
    own: &BTreeSet<IpAddr>,
    good: &BTreeMap<IpAddr, u64>,
) -> Vec<SocketAddr> {
    let is_own = |it: &SocketAddr| own.contains(&it.ip().to_canonical());
    let is_here = candidates.iter().all(is_own);
    candidates.sort_by_key(|it| {
        let last_good = good.get(&it.ip()).map(|at| std::cmp::Reverse(*at));
        (is_own(it) && !is_here, last_good.is_none(), last_good)
    });
    candidates
}

fn stagger() -> Duration {
    Duration::from_nanos(NEXT_ADDRESS_AFTER.0)
}

/// The errors of a lost race. It reports another error rather than a failed verification of the
/// certificate, because at the node's own address the certificate would be valid.
#[derive(Default)]
struct Lost(Option<io::Error>);

impl Lost {
    fn add(&mut self, error: io::Error) {
        let is_of_trust = |it: &io::Error| tls::explain_chain(it).is_some();
        if self.0.as_ref().is_none_or(|known| is_of_trust(known) && !is_of_trust(&error)) {
            self.0 = Some(error);
        }
    }
    fn told(self) -> io::Error {
        self.0.unwrap_or_else(|| io::Error::other("there is no address"))
    }
}

/// Opens a connection to the first address that accepts it.
pub async fn first<T, O>(
    candidates: Vec<SocketAddr>,
    open: impl Fn(SocketAddr) -> O,
) -> io::Result<T>
where
    T: Send + 'static,
    O: Future<Output = io::Result<T>> + Send + 'static,
{
    let mut left = in_order(candidates).into_iter().take(limits::ADDRESSES_MAX).peekable();
    let (mut tried, mut lost) = (JoinSet::new(), Lost::default());
    loop {
        if let Some(address) = left.next() {
            let opened = open(address);
            tried.spawn(async move { (address, opened.await) });
        } else if tried.is_empty() {
            return Err(lost.told());
        }
        let ended = match left.peek() {
            Some(_) => tokio::time::timeout(stagger(), tried.join_next()).await.unwrap_or(None),
            None => tried.join_next().await,
        };
        match ended {
            Some(Ok((address, Ok(opened)))) => {
                note_good(address);
                return Ok(opened); // The other attempts end with the set.
            }
            Some(Ok((address, Err(error)))) => {
                note_bad(address);
                lost.add(error);
            }
            Some(Err(error)) => lost.add(io::Error::other(error)),
            None => {}
        }
    }
}

/// As [`first`], for blocking threads. `open` must return by itself; a late connection is dropped.
pub fn first_blocking<T: Send + 'static>(
    candidates: Vec<SocketAddr>,
    open: impl Fn(SocketAddr) -> io::Result<T> + Clone + Send + 'static,
) -> io::Result<T> {
    if let [only] = candidates[..] {
        return open(only);
    }
    let mut left = in_order(candidates).into_iter().take(limits::ADDRESSES_MAX).peekable();
    let (sender, ended) = mpsc::channel();
    let (mut running, mut lost) = (0_usize, Lost::default());
    let deadline = Instant::now() + CONNECT_RACE_TIMEOUT;
    loop {
        if let Some(address) = left.next() {
            let (sender, open) = (sender.clone(), open.clone());
            let thread = std::thread::Builder::new().name("dial".to_owned());
            // After the race the channel is closed.
            thread.spawn(move || drop(sender.send((address, open(address)))))?;
            running += 1;
        } else if running == 0 {
            return Err(lost.told());
        }
        let next = match left.peek() {
            Some(_) => ended.recv_timeout(stagger()).ok(),
            None => {
                let left = deadline.saturating_duration_since(Instant::now());
                let next = ended.recv_timeout(left).ok();
                if next.is_none() {
                    lost.add(io::ErrorKind::TimedOut.into());
                    return Err(lost.told());
                }
                next
            }
        };
        match next {
            Some((address, Ok(opened))) => {
                note_good(address);
                return Ok(opened);
            }
            Some((address, Err(error))) => {
                running -= 1;
                note_bad(address);
                lost.add(error);
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_list_is_one_address_or_several() {
        assert_eq!(parse("127.0.0.1:7").unwrap(), [at("127.0.0.1:7")]);
        assert_eq!(parse("10.0.0.1:7,[fd00::1]:7").unwrap(), [at("10.0.0.1:7"), at("[fd00::1]:7")]);
        assert!(parse("10.0.0.1:7,nonsense").unwrap_err().contains("'nonsense'"));
        let many = vec!["10.0.0.1:7"; 20].join(",");
        assert_eq!(parse(&many).unwrap().len(), limits::ADDRESSES_MAX);
    }

    #[test]
    fn what_was_good_comes_first_and_what_is_our_own_last() {
        let all = ["172.17.0.1:7", "10.0.0.2:7", "10.1.0.2:7"].map(at).to_vec();
        let own = BTreeSet::from(["172.17.0.1", "10.0.0.1"].map(|it| it.parse().unwrap()));
        let (none, ip) = (BTreeMap::new(), |text: &str| text.parse::<IpAddr>().unwrap());
        let order = sorted(all.clone(), &own, &none);
        assert_eq!(order, ["10.0.0.2:7", "10.1.0.2:7", "172.17.0.1:7"].map(at));
        let good = BTreeMap::from([(ip("172.17.0.1"), 9), (ip("10.1.0.2"), 3)]);
        let order = sorted(all, &own, &good);
        assert_eq!(order, ["10.1.0.2:7", "10.0.0.2:7", "172.17.0.1:7"].map(at));
        // A node of this machine: all of its addresses are local.
        let here = ["172.17.0.1:7", "10.0.0.1:7"].map(at).to_vec();
        assert_eq!(sorted(here.clone(), &own, &none), here);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_address_costs_one_stagger_and_is_tried_last_afterwards() {
        let (silent, well) = (at("192.0.2.10:7"), at("192.0.2.11:7"));
        let open = move |address| async move {
            match address == well {
                true => Ok(address),
                false => std::future::pending().await,
            }
        };
        // The clock of the test advances only while nothing else can run.
        let begun = tokio::time::Instant::now();
        assert_eq!(first(vec![silent, well], open).await.unwrap(), well);
        assert_eq!(begun + stagger(), tokio::time::Instant::now());
        assert_eq!(in_order(vec![silent, well]), [well, silent]);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_failure_the_next_is_tried_at_once_and_all_failures_are_one() {
        let (refuses, well) = (at("192.0.2.20:7"), at("192.0.2.21:7"));
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let open = move |address| async move {
            if address == well { Ok(address) } else { Err(refused()) }
        };
        let begun = tokio::time::Instant::now();
        assert_eq!(first(vec![refuses, well], open).await.unwrap(), well);
        assert_eq!(begun, tokio::time::Instant::now());
        let open = move |_| async move { Err::<(), _>(refused()) };
        let error = first(vec![refuses, well], open).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(in_order(vec![refuses, well]), [refuses, well], "neither is good now");
    }

    #[test]
    fn threads_race_as_well() {
        let (silent, refuses, well) = (at("192.0.2.30:7"), at("192.0.2.31:7"), at("192.0.2.32:7"));
        // The silent address answers after the end of the test.
        let (_end, ended) = mpsc::channel::<()>();
        let ended = Arc::new(Mutex::new(ended));
        let open = move |address| {
            if address == silent {
                let _ = ended.lock().unwrap().recv();
            }
            if address == well { Ok(address) } else { Err(io::Error::other("no")) }
        };
        let race = |all: Vec<SocketAddr>| first_blocking(all, open.clone());
        assert_eq!(race(vec![silent, refuses, well]).unwrap(), well);
        assert!(race(vec![refuses]).is_err());
        assert!(race(vec![refuses, refuses]).is_err());
    }

    #[test]
    fn of_two_failures_that_of_trust_is_told_last() {
        let distrust = || {
            let unknown = rustls::CertificateError::UnknownIssuer;
            io::Error::other(rustls::Error::InvalidCertificate(unknown))
        };
        let mut lost = Lost::default();
        lost.add(distrust());
        assert!(tls::explain_chain(lost.0.as_ref().unwrap()).is_some());
        lost.add(io::Error::other("no route"));
        lost.add(distrust());
        assert_eq!(lost.told().to_string(), "no route");
    }
}
