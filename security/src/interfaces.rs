/*!
The addresses of this machine, as reported by the kernel. Nodes publish them, and [`crate::race`]
orders addresses by them.

Only interfaces that are up and have a carrier count. Addresses that no other machine can use are
left out: link-local IPv6 addresses, which need a zone of this machine, and addresses that the
kernel has not accepted yet.
*/
#![expect(clippy::host_endian_bytes, reason = "the kernel speaks in the machine's own order")]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use proto::Span;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// A process asks the kernel for the addresses of its machine at this interval.
const OWN_ADDRESSES_CHECK_INTERVAL: Span = Span::from_secs(5);

/// One address of an interface that is up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    pub name: String,
    pub address: IpAddr,
    /// The number of network bits in the address.
    pub prefix: u8,
    kind: Kind,
    /// In Mbit/s; 0: unknown.
    speed: u64,
}

/// The likelihood that other machines can reach an address, highest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Plain,
    /// On a bridge, which often connects only containers and virtual machines of this machine.
    Bridge,
    /// In 169.254.0.0/16.
    Link,
    Loopback,
}

impl Interface {
    /// An interface of unknown speed that is neither a bridge nor a loopback.
    #[must_use]
    pub fn plain(name: &str, address: IpAddr, prefix: u8) -> Self {
        Self { name: name.to_owned(), address, prefix, kind: Kind::Plain, speed: 0 }
    }

    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.kind == Kind::Loopback
    }
}

// Constants of <linux/netlink.h>, <linux/rtnetlink.h>, <linux/if.h>, <linux/if_link.h> and
// <linux/if_addr.h>.
const DUMP_REQUEST: u16 = 0x301;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
const LINK_NAME: u16 = 3;
const LINK_INFO: u16 = 18;
const LINK_INFO_KIND: u16 = 1;
const ADDRESS: u16 = 1;
const ADDRESS_LOCAL: u16 = 2;
const UP: u32 = 1;
/// Flags for a carrier. The kernel sets the first one slightly later than the second.
const RUNNING: u32 = 0x40;
const LOWER_UP: u32 = 0x1_0000;
/// Deprecated, a duplicate, or not yet checked for duplicates.
const NOT_USABLE: u8 = 0x20 | 0x08 | 0x40;
const HEAD_BYTES: usize = 16;
/// On a machine with more links and addresses only the first ones count.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// The addresses of interfaces that are up, most likely reachable and fastest first.
pub fn list() -> io::Result<Vec<Interface>> {
    let links = links(&ask(GET_LINK, HEAD_BYTES)?);
    let mut found = addresses(&ask(GET_ADDRESS, 8)?, &links);
    for it in &mut found {
        it.speed = speed(&it.name);
    }
    found.sort_by_key(|it| (it.kind, std::cmp::Reverse(it.speed), it.address.is_ipv6()));
    Ok(found)
}

/// The addresses of this machine, cached for a short time.
pub(crate) fn own() -> Arc<BTreeSet<IpAddr>> {
    type Known = Option<(Instant, Arc<BTreeSet<IpAddr>>)>;
    static KNOWN: Mutex<Known> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let lasts = Duration::from_nanos(OWN_ADDRESSES_CHECK_INTERVAL.0);
    match &*known {
        Some((at, own)) if at.elapsed() < lasts => Arc::clone(own),
        _ => {
            let own = Arc::new(ask_own().unwrap_or_default());
            *known = Some((Instant::now(), Arc::clone(&own)));
            own
        }
    }
}

/// True if traffic to the address stays on this machine.
#[must_use]
pub fn is_own(address: IpAddr) -> bool {
    let address = address.to_canonical();
    address.is_loopback() || own().contains(&address)
}

fn ask_own() -> io::Result<BTreeSet<IpAddr>> {
    let links = links(&ask(GET_LINK, HEAD_BYTES)?);
    let found = addresses(&ask(GET_ADDRESS, 8)?, &links);
    Ok(found.into_iter().map(|it| it.address).collect())
}

/// The complete answer of the kernel to one request.
fn ask(what: u16, body_bytes: usize) -> io::Result<Vec<u8>> {
    let (flags, family) = (SocketFlags::CLOEXEC, AddressFamily::NETLINK);
    // No protocol selects protocol 0, routing.
    let socket = rustix::net::socket_with(family, SocketType::RAW, flags, None)?;
    let length = HEAD_BYTES + body_bytes;
    let mut question = (length as u32).to_ne_bytes().to_vec();
    question.extend(what.to_ne_bytes());
    question.extend(DUMP_REQUEST.to_ne_bytes());
    question.resize(length, 0);
    let kernel = SocketAddrNetlink::new(0, 0);
    rustix::net::sendto(&socket, &question, SendFlags::empty(), &kernel)?;
    let (mut answer, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let (_, length) = rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        let part = buffer.get(..length).ok_or(io::ErrorKind::InvalidData)?;
        let mut is_last = length == 0;
        for (kind, body) in messages(part) {
            match kind {
                DONE => is_last = true,
                ERROR => {
                    let number = body.get(..4).and_then(|it| it.try_into().ok());
                    let number = i32::from_ne_bytes(number.unwrap_or_default());
                    return Err(io::Error::from_raw_os_error(-number));
                }
                _ => {}
            }
        }
        answer.extend_from_slice(part);
        if is_last || answer.len() > ANSWER_BYTES_MAX {
            return Ok(answer);
        }
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// Splits an answer into messages with their kind, without headers.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(number(bytes, 0)?) as usize;
        let kind = u16::from_ne_bytes(number(bytes, 4)?);
        let body = bytes.get(HEAD_BYTES..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

/// Splits a message into attributes with their kind.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(number(bytes, 0)?));
        let kind = u16::from_ne_bytes(number(bytes, 2)?) & 0x3fff;
        let body = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}

/// The links that are up, by number.
fn links(answer: &[u8]) -> BTreeMap<u32, (String, Kind)> {
    let link = |body: &[u8]| {
        let index = u32::from_ne_bytes(number(body, 4)?);
        let flags = u32::from_ne_bytes(number(body, 8)?);
        let (mut name, mut kind) = (String::new(), Kind::Plain);
        for (what, value) in attributes(body.get(16..)?) {
            match what {
                LINK_NAME => name = text(value),
                LINK_INFO => {
                    let is = |(what, value)| what == LINK_INFO_KIND && text(value) == "bridge";
                    if attributes(value).any(is) {
                        kind = Kind::Bridge;
                    }
                }
                _ => {}
            }
        }
        let is_up = flags & UP != 0 && flags & (RUNNING | LOWER_UP) != 0;
        is_up.then_some((index, (name, kind)))
    };
    let of_links = messages(answer).filter(|(kind, _)| *kind == NEW_LINK);
    of_links.filter_map(|(_, body)| link(body)).collect()
}

fn addresses(answer: &[u8], links: &BTreeMap<u32, (String, Kind)>) -> Vec<Interface> {
    let address = |body: &[u8]| {
        let index = u32::from_ne_bytes(number(body, 4)?);
        let (name, kind) = links.get(&index)?.clone();
        let (mut local, mut plain) = (None, None);
        for (what, value) in attributes(body.get(8..)?) {
            let value = match value.len() {
                4 => number(value, 0).map(|it| IpAddr::V4(Ipv4Addr::from(it))),
                16 => number(value, 0).map(|it| IpAddr::V6(Ipv6Addr::from(it))),
                _ => None,
            };
            match what {
                ADDRESS_LOCAL => local = value,
                ADDRESS => plain = value,
                _ => {}
            }
        }
        let address = local.or(plain)?;
        let (kind, is_usable) = match address {
            // The loopback interface may have further addresses, which route to this machine.
            it if it.is_loopback() => (Kind::Loopback, true),
            IpAddr::V4(it) if it.is_link_local() => (kind.max(Kind::Link), true),
            IpAddr::V6(it) => (kind, !it.is_unicast_link_local()),
            IpAddr::V4(_) => (kind, true),
        };
        let is_usable = is_usable && body[2] & NOT_USABLE == 0;
        is_usable.then_some(Interface { name, address, prefix: body[1], kind, speed: 0 })
    };
    let of_addresses = messages(answer).filter(|(kind, _)| *kind == NEW_ADDRESS);
    of_addresses.filter_map(|(_, body)| address(body)).collect()
}

/// In Mbit/s, if the driver reports it.
fn speed(name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/speed"));
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_its_loopback_and_no_address_of_one_link() {
        let found = list().unwrap();
        let loopback = found.iter().find(|it| it.address == IpAddr::V4(Ipv4Addr::LOCALHOST));
        assert!(loopback.is_some_and(|it| it.is_loopback() && it.name == "lo"), "{found:?}");
        let of_link =
            |it: &Interface| matches!(it.address, IpAddr::V6(it) if it.is_unicast_link_local());
        assert!(!found.iter().any(of_link), "{found:?}");
        assert!(found.is_sorted_by_key(|it| it.kind), "{found:?}");
    }

    #[test]
    fn the_own_addresses_are_asked_for_once_in_a_while() {
        let first = own();
        assert!(first.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
        assert!(Arc::ptr_eq(&first, &own()));
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut out = (4 + value.len() as u16).to_ne_bytes().to_vec();
        out.extend(kind.to_ne_bytes());
        out.extend(value);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut out = ((HEAD_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        out.extend(kind.to_ne_bytes());
        out.resize(HEAD_BYTES, 0);
        out.extend(body);
        out
    }

    fn link(index: u32, flags: u32, name: &str, kind: &str) -> Vec<u8> {
        let mut body = vec![0; 16];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        body[8..12].copy_from_slice(&flags.to_ne_bytes());
        body.extend(attribute(LINK_NAME, format!("{name}\0").as_bytes()));
        body.extend(attribute(LINK_INFO, &attribute(LINK_INFO_KIND, kind.as_bytes())));
        message(NEW_LINK, &body)
    }

    fn address(index: u32, flags: u8, address: IpAddr) -> Vec<u8> {
        let mut body = vec![0, 24, flags, 0];
        body.extend(index.to_ne_bytes());
        body.extend(match address {
            IpAddr::V4(it) => attribute(ADDRESS_LOCAL, &it.octets()),
            IpAddr::V6(it) => attribute(ADDRESS, &it.octets()),
        });
        message(NEW_ADDRESS, &body)
    }

    #[test]
    fn links_that_are_down_and_addresses_without_use_to_others_do_not_count() {
        let up = UP | RUNNING;
        let told = [
            link(1, up | 8, "lo", ""),
            link(2, UP | LOWER_UP, "eth0", "veth"),
            link(3, UP, "eth1", "veth"),
            link(4, up, "docker0", "bridge"),
        ];
        let links = links(&told.concat());
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let told = [
            address(1, 0, ip("127.0.0.1")),
            address(1, 0, ip("10.255.0.7")),
            address(4, 0, ip("172.17.0.1")),
            address(3, 0, ip("10.3.0.1")),
            address(2, 0, ip("169.254.7.7")),
            address(2, 0, ip("fe80::1")),
            address(2, 0x40, ip("fd00::9")),
            address(2, 0, ip("fd00::1")),
            address(2, 0, ip("10.2.0.1")),
        ];
        let mut found: Vec<_> = addresses(&told.concat(), &links);
        found.sort_by_key(|it| (it.kind, it.address.is_ipv6()));
        let texts: Vec<String> = found.iter().map(|it| it.address.to_string()).collect();
        assert_eq!(
            texts,
            ["10.255.0.7", "10.2.0.1", "fd00::1", "172.17.0.1", "169.254.7.7", "127.0.0.1"]
        );
    }
}
