//! The addresses of this host that other hosts may reach, and which of them a rank binds.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAddress {
    /// The address.
    pub address: Ipv4Addr,
    /// The name of the interface.
    pub interface: String,
}

/// Returns the IPv4 addresses of the interfaces that are up, without those that only this host
/// reaches.
///
/// # Errors
/// What the system said.
pub fn of_host() -> io::Result<Vec<HostAddress>> {
    let up = nix::net::if_::InterfaceFlags::IFF_UP;
    let reachable = nix::ifaddrs::getifaddrs()?.filter(|found| found.flags.contains(up));
    let addresses = reachable.filter_map(|found| {
        let address = found.address.as_ref()?.as_sockaddr_in()?.ip();
        let is_local = address.is_loopback() || address.is_link_local();
        (!is_local).then_some(HostAddress { address, interface: found.interface_name })
    });
    Ok(addresses.collect())
}

/// Returns the address from which this host sends to the first of `peers` that it has a route to
/// over the network that both are on, or over any network. It sends nothing.
pub fn towards(peers: &[Ipv4Addr]) -> Option<Ipv4Addr> {
    let routes = peers.iter().filter_map(|peer| Some((*peer, source_towards(*peer)?)));
    // Hosts have addresses of networks that only they are on, as bridges of containers are; their
    // addresses begin differently.
    routes.max_by_key(|(peer, own)| (peer.to_bits() ^ own.to_bits()).leading_zeros()).map(|it| it.1)
}

/// Returns the address from which the kernel would send to `peer`.
fn source_towards(peer: Ipv4Addr) -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // Any port: nothing is sent.
    socket.connect((peer, 9)).ok()?;
    match socket.local_addr().ok()? {
        SocketAddr::V4(own) if !own.ip().is_loopback() || peer.is_loopback() => Some(*own.ip()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn towards__is_the_address_that_a_peer_sees() {
        assert_eq!(towards(&[Ipv4Addr::LOCALHOST]), Some(Ipv4Addr::LOCALHOST));
        assert_eq!(towards(&[]), None);
        for own in of_host().expect("interfaces") {
            assert!(!own.address.is_loopback());
            // A host reaches its own address over the loopback, from that address.
            assert_eq!(towards(&[own.address]), Some(own.address));
        }
    }
}
