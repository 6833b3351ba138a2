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

/// What becomes of wrong passwords.
#[derive(Clone)]
pub struct OnWrongPassword {
    /// Gets to know an address from which one came.
    pub tell: Arc<dyn Fn(IpAddr) + Send + Sync>,
    /// The present moment.
    pub now: Arc<dyn Fn() -> Instant + Send + Sync>,
}

/// See the module header.
pub(crate) struct WrongPasswords {
    reaction: Option<OnWrongPassword>,
    told: Mutex<HashMap<IpAddr, Instant>>,
}

impl WrongPasswords {
    pub(crate) fn new(reaction: Option<OnWrongPassword>) -> Self {
        Self { reaction, told: Mutex::default() }
    }

    /// A request from an address had a wrong password.
    pub(crate) fn meet(&self, peer: IpAddr) {
        let Some(OnWrongPassword { tell, now }) = &self.reaction else { return };
        let is_new = {
            let (now, mut told) = (now(), self.told.lock());
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
        if is_new {
            tell(peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_told_of_once_a_minute() {
        let (told, begin, seconds) = (Arc::new(Mutex::new(Vec::new())), Instant::now(), Arc::new(Mutex::new(0)));
        let (seen, passed) = (told.clone(), seconds.clone());
        let wrong = WrongPasswords::new(Some(OnWrongPassword {
            tell: Arc::new(move |peer| seen.lock().push(peer)),
            now: Arc::new(move || begin + Duration::from_secs(*passed.lock())),
        }));
        let of = |peer: &str| peer.parse::<IpAddr>().expect("an address");
        let all = ["192.0.2.1", "192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"];
        all.iter().for_each(|peer| wrong.meet(of(peer)));
        let first = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(of);
        assert_eq!(*told.lock(), first);
        // A guess each half minute is told each minute.
        for at in [30, 60, 90, 120] {
            *seconds.lock() = at;
            wrong.meet(first[0]);
        }
        assert_eq!(told.lock()[first.len()..], [first[0], first[0]]);
    }
}
