/*!
The addresses at which a node listens, and those that it announces.

With [`Listen::Auto`] the node listens on all addresses of its machine and announces those of
interfaces that are up. Other nodes try them in turn. So an unreachable address costs them only a
moment, and a machine with several networks needs no configuration.
*/

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::str::FromStr;

use proto::limits;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use security::interfaces::{self, Interface};

use crate::error::StartError;

const BACKLOG: i32 = 1024;

/// The addresses at which a node listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listen {
    /// One address.
    At(SocketAddr),
    /// All addresses of interfaces that are up; only those of `only` if it is not empty.
    Auto { port: u16, only: Vec<AddressSelector> },
}

/// A selection of the machine's addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AddressSelector {
    /// The addresses of an interface.
    Name(String),
    /// The addresses of a network: its address and the length of its prefix.
    Network(IpAddr, u8),
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Self {
        Self::At(address)
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let auto = |port| Self::Auto { port, only: Vec::new() };
        match text.strip_prefix("auto") {
            Some("") => Ok(auto(0)),
            Some(port) if port.starts_with(':') => {
                let port = port[1..].parse();
                port.map(auto).map_err(|_| format!("'{text}' has no port after the colon"))
            }
            _ => text
                .parse()
                .map(Self::At)
                .map_err(|_| "it is neither IP:PORT nor 'auto' nor 'auto:PORT'".to_owned()),
        }
    }
}

impl FromStr for AddressSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        match (address.parse::<IpAddr>(), bits) {
            (Ok(address), bits) => {
                let most = if address.is_ipv4() { 32 } else { 128 };
                let bits = bits.map_or(Ok(most), str::parse).ok().filter(|bits| *bits <= most);
                let bits = bits.ok_or_else(|| format!("'{text}' is no network"))?;
                Ok(Self::Network(address, bits))
            }
            (Err(_), None) if !text.is_empty() => Ok(Self::Name(text.to_owned())),
            _ => Err(format!("'{text}' is neither an interface nor a network")),
        }
    }
}

impl std::fmt::Display for AddressSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Network(address, bits) => write!(f, "{address}/{bits}"),
        }
    }
}

impl AddressSelector {
    fn takes(&self, interface: &Interface) -> bool {
        match self {
            Self::Name(name) => *name == interface.name,
            Self::Network(network, bits) => is_in(interface.address, *network, *bits),
        }
    }
}

fn is_in(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let number = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => (u128::from(ip.to_bits()), 32),
        IpAddr::V6(ip) => (ip.to_bits(), 128),
    };
    let ((address, length), (network, of_network)) = (number(address), number(network));
    if length != of_network {
        return false;
    }
    (address ^ network).checked_shr(length - u32::from(bits)).unwrap_or(0) == 0
}

/// Both ports of a node, and the addresses that it announces.
#[derive(Debug)]
pub(crate) struct BoundPorts {
    pub(crate) calls: TcpListener,
    pub(crate) data: TcpListener,
    /// Each a list, as in `Member` of the protocol.
    pub(crate) address: String,
    pub(crate) data_address: String,
    /// The first of the addresses.
    pub(crate) first: SocketAddr,
    /// The addresses as a text for people.
    pub(crate) text: String,
    /// No interface is up: only this machine can reach the node, although it listens on all
    /// addresses.
    pub(crate) is_alone: bool,
    /// Connections to other addresses of the machine are refused; empty: none are.
    pub(crate) only: Vec<IpAddr>,
}

/// Binds the two ports.
pub(crate) fn bind(listen: &Listen) -> Result<BoundPorts, StartError> {
    let (port, only) = match listen {
        Listen::At(address) => {
            let (calls, bound) = take(*address, &[])?;
            let (data, data_bound) = take(SocketAddr::new(address.ip(), 0), &[])?;
            let (address, data_address) = (bound.to_string(), data_bound.to_string());
            let (first, text, only, is_alone) = (bound, address.clone(), vec![], false);
            return Ok(BoundPorts {
                calls,
                data,
                address,
                data_address,
                first,
                text,
                is_alone,
                only,
            });
        }
        Listen::Auto { port, only } => (*port, only),
    };
    let told = told(interfaces::list().map_err(StartError::Interfaces)?, only)?;
    let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
    let (calls, bound) = take(any, &told)?;
    let (data, data_bound) = take(SocketAddr::new(any.ip(), 0), &told)?;
    let list = |port| {
        let each = told.iter().map(|ip| SocketAddr::new(*ip, port).to_string());
        each.collect::<Vec<_>>().join(",")
    };
    Ok(BoundPorts {
        calls,
        data,
        address: list(bound.port()),
        data_address: list(data_bound.port()),
        first: SocketAddr::new(told[0], bound.port()),
        text: text_of(&told, bound.port(), !only.is_empty()),
        is_alone: only.is_empty() && told.iter().all(IpAddr::is_loopback),
        only: if only.is_empty() { vec![] } else { told },
    })
}

fn text_of(told: &[IpAddr], port: u16, are_chosen: bool) -> String {
    let told: Vec<String> = told.iter().map(ToString::to_string).collect();
    let told = told.join(", ");
    match are_chosen {
        true => format!("all addresses, port {port}; takes connections to these alone: {told}"),
        false => format!("all addresses, port {port}; announced: {told}"),
    }
}

/// The announced addresses, best first. At least one.
fn told(found: Vec<Interface>, only: &[AddressSelector]) -> Result<Vec<IpAddr>, StartError> {
    let is_wanted = |it: &Interface| match only {
        [] => !it.is_loopback(),
        only => only.iter().any(|which| which.takes(it)),
    };
    let wanted: Vec<&Interface> = found.iter().filter(|it| is_wanted(it)).collect();
    // If there are too many, the best address of each network comes before further ones of it.
    let earlier_of_network = |at: usize| {
        let is_same = |it: &&&Interface| is_in(it.address, wanted[at].address, wanted[at].prefix);
        wanted[..at].iter().filter(is_same).count()
    };
    let mut chosen: Vec<usize> = (0..wanted.len()).collect();
    chosen.sort_by_key(|&at| earlier_of_network(at));
    chosen.truncate(limits::ADDRESSES_MAX);
    chosen.sort_unstable();
    let mut told: Vec<IpAddr> = chosen.into_iter().map(|at| wanted[at].address).collect();
    if told.is_empty() && !only.is_empty() {
        let only: Vec<String> = only.iter().map(ToString::to_string).collect();
        let up = found.iter().map(|it| format!("{} ({})", it.name, it.address));
        let up = up.collect::<Vec<_>>().join(", ");
        return Err(StartError::NoInterface { only: only.join(","), up });
    }
    if told.is_empty() {
        told.push(Ipv4Addr::LOCALHOST.into()); // A machine without a network has only itself.
    }
    Ok(told)
}

/// Binds a listener. An unspecified address includes IPv6 if one of `told` is of that kind.
fn take(address: SocketAddr, told: &[IpAddr]) -> Result<(TcpListener, SocketAddr), StartError> {
    let listen = || {
        let listener = match told.iter().any(IpAddr::is_ipv6) {
            false => TcpListener::bind(address)?,
            true => take_both(address.port())?.into(),
        };
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    listen().map_err(|error| StartError::Listen { address, error })
}

/// Binds to IPv4 and IPv6, regardless of the machine's setting for that.
fn take_both(port: u16) -> std::io::Result<OwnedFd> {
    let (family, flags) = (AddressFamily::INET6, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_ipv6_v6only(&socket, false)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn where_to_listen_is_auto_or_an_address() {
        let auto = |port| Listen::Auto { port, only: Vec::new() };
        assert_eq!("auto".parse(), Ok(auto(0)));
        assert_eq!("auto:7000".parse(), Ok(auto(7000)));
        assert_eq!("10.0.0.1:7".parse(), Ok(Listen::At("10.0.0.1:7".parse().unwrap())));
        for wrong in ["auto:", "auto:x", "automatic", "10.0.0.1", "host:7", ""] {
            assert!(wrong.parse::<Listen>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn interfaces_are_chosen_by_name_and_by_network() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!("hsn0".parse(), Ok(AddressSelector::Name("hsn0".to_owned())));
        assert_eq!("10.1.0.0/16".parse(), Ok(AddressSelector::Network(ip("10.1.0.0"), 16)));
        assert_eq!("10.1.2.3".parse(), Ok(AddressSelector::Network(ip("10.1.2.3"), 32)));
        for wrong in ["10.1.0.0/33", "10.1.0.0/x", "eth0/16", "", "/8"] {
            assert!(wrong.parse::<AddressSelector>().is_err(), "{wrong}");
        }
        assert!(is_in(ip("10.1.255.9"), ip("10.1.0.0"), 16));
        assert!(!is_in(ip("10.2.0.9"), ip("10.1.0.0"), 16));
        assert!(is_in(ip("192.0.2.9"), ip("0.0.0.0"), 0));
        assert!(is_in(ip("fd00::7"), ip("fd00::"), 8) && !is_in(ip("fe00::7"), ip("fd00::"), 8));
        assert!(is_in(ip("fe00::7"), ip("::"), 0) && !is_in(ip("10.0.0.1"), ip("::"), 0));
        assert!(!is_in(ip("10.0.0.1"), ip("fd00::"), 64));
    }

    #[test]
    fn only_selected_addresses_are_announced_and_no_match_lists_the_interfaces() {
        let found = || interfaces::list().unwrap();
        let loopback = [AddressSelector::Name("lo".to_owned())];
        assert!(told(found(), &loopback).unwrap().contains(&Ipv4Addr::LOCALHOST.into()));
        assert!(told(found(), &[]).is_ok_and(|told| !told.is_empty()));
        let none = [AddressSelector::Name("hsn9".to_owned())];
        let error = told(found(), &none).unwrap_err().to_string();
        assert!(error.contains("'hsn9'") && error.contains("lo (127.0.0.1)"), "{error}");
        assert_eq!(told(Vec::new(), &[]).unwrap(), [IpAddr::from(Ipv4Addr::LOCALHOST)]);
    }

    #[test]
    fn each_network_is_announced_before_a_second_address_of_one() {
        let of = |text: &str| Interface::plain("hsn0", text.parse().unwrap(), 24);
        let mut found: Vec<Interface> = (1..=9).map(|n| of(&format!("10.0.0.{n}"))).collect();
        found.extend([of("10.1.0.1"), of("192.0.2.1"), of("fd00::1")]);
        let told = told(found, &[]).unwrap();
        let texts: Vec<String> = told.iter().map(ToString::to_string).collect();
        let first = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"];
        assert_eq!(texts[..5], first);
        assert_eq!(texts[5..], ["10.1.0.1", "192.0.2.1", "fd00::1"]);
    }

    #[test]
    fn all_addresses_are_bound_and_announced_with_their_ports() {
        let only = vec![AddressSelector::Name("lo".to_owned())];
        let bound = bind(&Listen::Auto { port: 0, only }).unwrap();
        let parse = |text: &str| security::race::parse(text).unwrap();
        let (calls, data) = (parse(&bound.address), parse(&bound.data_address));
        assert_eq!(calls[0], bound.first);
        assert_ne!(calls[0].port(), data[0].port());
        for address in calls.iter().chain(&data) {
            TcpStream::connect(address).unwrap();
        }
        assert_eq!(bound.only.len(), calls.len());
        assert!(bound.text.starts_with("all addresses, port "), "{}", bound.text);
        assert!(bound.text.contains("alone: 127.0.0.1"), "{}", bound.text);
        let one = bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
        assert_eq!(one.address, one.first.to_string());
        assert!(one.only.is_empty());
    }
}
