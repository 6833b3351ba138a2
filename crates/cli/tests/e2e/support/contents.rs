//! The bytes of every chunk that is stored, whether a snapshot uses it or not.

use std::sync::Arc;

use larder_format::compress::Decompressor;
use larder_format::names;
use larder_store::repository::SystemEntropy;
use larder_store::{Location, Repository, Store, StoreOptions};

use super::{PASSWORD, Play, damage};

/// Whether some bytes are in any chunk of any container of a repository with the usual password.
pub(crate) fn stores(play: &Play, repository: &str, wanted: &[u8]) -> bool {
    let folder = play.path(repository);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let location = Location::from_os(folder.as_os_str()).expect("a folder");
        let store = Store::open(&location, &StoreOptions::default()).expect("opens");
        let opened = Repository::open(store, PASSWORD.as_bytes(), Arc::new(SystemEntropy)).await.expect("opens");
        let (mut scratch, mut raw, mut decompressor) = (Vec::new(), Vec::new(), Decompressor::new());
        for prefix in ["data/", "meta/"] {
            for name in damage::named(&folder, prefix) {
                let id = names::parse_container(&name).expect("a container");
                let container = opened.read_container(id).await.expect("is read");
                for frame in container.index.frames() {
                    container.open_frame(&opened, frame, &mut scratch, &mut raw, &mut decompressor).expect("opens");
                    if raw.windows(wanted.len()).any(|window| window == wanted) {
                        return true;
                    }
                }
            }
        }
        false
    })
}
