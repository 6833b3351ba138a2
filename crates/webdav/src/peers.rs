//! Connections of each address, and what counts as one.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

/// Connections of one address, apart from this machine's. More are closed.
const CONNECTIONS_OF_ONE: usize = 32;

/// The address that counts: of IPv6 the network, because a machine may have all its addresses.
pub(crate) fn network(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V6(address) if !address.is_loopback() => {
            Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into()
        }
        peer => peer,
    }
}

/// Connections of each address.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peers(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A connection that counts. It ends with this value.
pub(crate) struct Counted {
    peers: Peers,
    peer: IpAddr,
}

impl Peers {
    /// Counts one more. `None`: the address has enough.
    pub(crate) fn add(&self, peer: IpAddr) -> Option<Counted> {
        let peer = network(peer);
        let mut peers = self.0.lock();
        let count = peers.entry(peer).or_default();
        if *count >= CONNECTIONS_OF_ONE && !peer.is_loopback() {
            return None;
        }
        *count += 1;
        Some(Counted { peers: self.clone(), peer })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut peers = self.peers.0.lock();
        if let Some(count) = peers.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                peers.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_does_not_take_all_places() {
        let peers = Peers::default();
        let [a, b, here] = ["192.0.2.1", "2001:db8::1", "127.0.0.1"].map(|peer| peer.parse().expect("an address"));
        let mut held: Vec<_> = (0..CONNECTIONS_OF_ONE).map(|_| peers.add(a).expect("a place")).collect();
        assert!(peers.add(a).is_none());
        held.pop();
        held.extend(peers.add(a));
        held.extend((0..100).filter_map(|_| peers.add(here)));
        assert_eq!(held.len(), CONNECTIONS_OF_ONE + 100);
        // One machine has all addresses of such a network.
        held.extend(
            (0..CONNECTIONS_OF_ONE as u16)
                .filter_map(|at| peers.add(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, at, 0, 0, 1).into())),
        );
        assert!(peers.add(b).is_none());
        drop(held);
        assert!(peers.0.lock().is_empty());
    }
}
