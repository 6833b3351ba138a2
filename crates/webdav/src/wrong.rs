//! Wrong passwords are told of: once a minute for each address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::peers::network;

/// An address is told of again after this time.
const AGAIN: Duration = Duration::from_secs(60);
/// Addresses that are remembered.
const ADDRESSES_MAX: usize = 1000;

/// Gets to know an address from which a wrong password came.
pub type Tell = Arc<dyn Fn(IpAddr) + Send + Sync>;

/// See the module header.
pub(crate) struct WrongPasswords {
    tell: Option<Tell>,
    told: Mutex<HashMap<IpAddr, Instant>>,
}

impl WrongPasswords {
    pub(crate) fn new(tell: Option<Tell>) -> Self {
        Self { tell, told: Mutex::default() }
    }

    /// A request from an address had a wrong password.
    pub(crate) fn meet(&self, peer: IpAddr) {
        let is_new = {
            let (now, mut told) = (Instant::now(), self.told.lock());
            told.retain(|_, at| now.duration_since(*at) < AGAIN);
            let has_room = told.len() < ADDRESSES_MAX;
            match told.entry(network(peer)) {
                Entry::Vacant(entry) if has_room => {
                    entry.insert(now);
                    true
                }
                _ => false,
            }
        };
        if let Some(tell) = self.tell.as_ref().filter(|_| is_new) {
            tell(peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_told_of_once() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let seen = told.clone();
        let wrong = WrongPasswords::new(Some(Arc::new(move |peer| seen.lock().push(peer))));
        let [a, b] = ["192.0.2.1", "192.0.2.2"].map(|peer| peer.parse().expect("an address"));
        for peer in [a, a, b, a, "2001:db8::1".parse().expect("an address"), "2001:db8::2".parse().expect("an address")]
        {
            wrong.meet(peer);
        }
        assert_eq!(*told.lock(), [a, b, "2001:db8::1".parse().expect("an address")]);
    }
}
