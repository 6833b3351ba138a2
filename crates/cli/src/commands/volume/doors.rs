//! What a served store listens on beside NBD: files, iSCSI, metrics, and the control socket.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_blockfs::Mounted;
use larder_nbd::{Exports, Server};
use larder_volume::VolumeExports;
use parking_lot::Mutex;

use super::control;
use super::host::Host;
use super::iscsi::{self, Chap, Iscsi};
use super::metrics;
use super::report::Report;
use super::users::CountedExports;
use crate::args::VolumeServeArgs;
use crate::commands::acceptor::Acceptor;
use crate::commands::metrics_server::{self, MetricsServer};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;

/// The folder of a store where files for `tgtd` are mounted.
const DEVICES: &str = "devices";

/// Which doors to open.
#[derive(Debug)]
pub(super) struct Wanted {
    store: PathBuf,
    files: Option<PathBuf>,
    iscsi: Option<(SocketAddr, Chap)>,
    metrics: Option<SocketAddr>,
}

impl Wanted {
    /// Refuses arguments that make no sense, before a store is opened.
    pub(super) fn of(args: &VolumeServeArgs) -> Result<Self, Failure> {
        let metrics = args.metrics.as_deref().map(metrics_server::parse_address).transpose()?;
        let iscsi = match (&args.iscsi, &args.chap) {
            (Some(address), Some(chap)) => {
                let address = iscsi::parse_address(address)?;
                iscsi::check()?;
                Some((address, Chap::read(chap)?))
            }
            _ => None,
        };
        if let Some(folder) = &args.mount_file {
            expect_free(folder)?;
        }
        Ok(Self { store: args.store.clone(), files: args.mount_file.clone(), iscsi, metrics })
    }

    /// Opens the doors of a store.
    pub(super) fn open(
        self,
        host: &Arc<Host>,
        server: &Arc<Server>,
        serial: String,
        out: &Output,
    ) -> Result<Doors, Failure> {
        let own = self.store.join(DEVICES);
        let folder = match (&self.files, &self.iscsi) {
            (Some(folder), _) => Some(folder.as_path()),
            (None, Some(_)) => {
                // Of a killed server: this process has the lock of the store now.
                if larder_blockfs::is_dead(&own) {
                    larder_blockfs::unmount_dead(&own);
                }
                Some(own.as_path())
            }
            (None, None) => None,
        };
        // `tgtd` has all files open all the time, so they would count as in use for ever.
        let exports: Arc<dyn Exports> = match self.iscsi {
            Some(_) => Arc::new(VolumeExports::new(host.store.clone())),
            None => Arc::new(CountedExports::new(host.store.clone(), host.users.clone())),
        };
        let files = folder.map(|folder| mount(folder, exports)).transpose()?;
        let iscsi = match (self.iscsi, &files) {
            (Some((address, chap)), Some(files)) => {
                let volumes = host.store.volumes();
                Some(Arc::new(Iscsi::start(address, chap, files.folder(), serial, &volumes, out)?))
            }
            _ => None,
        };
        let metrics = match self.metrics {
            Some(address) => {
                let host = host.clone();
                let render = Arc::new(move || metrics::render(&Report::of(&host, None)));
                Some(MetricsServer::start(address, render)?)
            }
            None => None,
        };
        let (answering, refreshed) = (host.clone(), iscsi.clone());
        let changing = Mutex::new(());
        let answer: control::Answer = Arc::new(move |request, parts| {
            // One after the other: targets are made from the list of volumes, and find their
            // files by name.
            let changes = refreshed.as_ref().filter(|_| request.changes_volumes());
            let _changing = changes.map(|_| changing.lock());
            let value = answering.execute(request, parts)?;
            if let (true, Some(iscsi)) = (request.changes_volumes(), &refreshed) {
                iscsi.refresh(&answering.store.volumes())?;
            }
            Ok(value)
        });
        let server = server.clone();
        let attach: control::Attach = Arc::new(move |stream| server.serve_unix(stream));
        let control = control::listen(&self.store, answer, attach)?;
        Ok(Doors { _control: control, metrics, iscsi, files })
    }
}

/// Open doors. They close in this order: who changes volumes first, then who uses files.
#[derive(Debug)]
pub(super) struct Doors {
    _control: Acceptor,
    pub(super) metrics: Option<MetricsServer>,
    pub(super) iscsi: Option<Arc<Iscsi>>,
    pub(super) files: Option<Mounted>,
}

impl Doors {
    /// Closes all of them.
    pub(super) fn close(self, out: &Output) {
        let Self { _control, metrics, iscsi, files } = self;
        drop((_control, metrics));
        drop(iscsi);
        let Some(files) = files else { return };
        let folder = files.folder().display().to_string();
        match files.unmount() {
            Ok(true) => {}
            Ok(false) => {
                out.warn(&format!("{folder} is still in use; it was unmounted anyway, and programs in it get errors"))
            }
            Err(error) => out.warn(&format!("{folder}: {error}")),
        }
    }
}

fn mount(folder: &Path, exports: Arc<dyn Exports>) -> Result<Mounted, Failure> {
    let failed = |error: std::io::Error| {
        let what = format!("cannot mount files on {}", folder.display());
        Failure::of(Exit::Failed, &error)
            .while_doing(&what)
            .advise("it needs /dev/fuse, and fusermount3 unless as root")
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    larder_blockfs::mount(folder, exports).map_err(failed)
}

/// Refuses a folder whose files would be hidden, and one with a dead mount.
fn expect_free(folder: &Path) -> Result<(), Failure> {
    let shown = folder.display();
    if larder_blockfs::is_dead(folder) {
        return Err(Failure::new(Exit::Failed, format!("{shown} has a dead mount on it"))
            .advise(format!("`fusermount3 -u {shown}` or `umount {shown}` removes it")));
    }
    match std::fs::read_dir(folder).map(|mut entries| entries.next().is_some()) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Ok(false) => Ok(()),
        Ok(true) => Err(Failure::new(Exit::Failed, format!("{shown} is not empty")).advise("name another folder")),
        Err(error) => Err(Failure::of(Exit::Failed, &error).while_doing(&format!("cannot mount on {shown}"))),
    }
}
