//! `--iscsi`: volumes as iSCSI targets, by a private `tgtd` on the files of a FUSE mount.
//!
//! `tgtd` gets a control socket in a private folder, so it meets no other one of the machine. Its
//! write cache is on: SYNCHRONIZE CACHE becomes `fdatasync`, and a flush of the store. UNMAP
//! becomes a punched hole, and a discard. With a target, `tgtd` ignores SIGTERM, so targets are
//! deleted first. It is killed with this process if `setpriv` is installed.

mod chap;
mod names;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use larder_format::volume_manifest::VolumeEntry;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

pub(super) use self::chap::Chap;
use crate::commands::listen::{host_of, private_folder};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;

/// How long `tgtd` may take to start, and to end.
const PATIENT: Duration = Duration::from_secs(10);
/// The interval at which it is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A running `tgtd`. A drop ends it.
#[derive(Debug)]
pub(super) struct Iscsi {
    child: Child,
    private: PathBuf,
    /// Where volumes are files.
    files: PathBuf,
    chap: Chap,
    /// Where it listens.
    pub(super) address: SocketAddr,
    /// What tells the devices of this store from others.
    serial: String,
    targets: Mutex<Targets>,
    out: Output,
}

/// Targets by the number of their volume.
#[derive(Debug, Default)]
struct Targets {
    known: BTreeMap<u32, Target>,
    next: u32,
}

#[derive(Debug, Clone)]
struct Target {
    id: u32,
    name: String,
    volume: String,
    size: u64,
}

/// Reads the argument of `--iscsi`.
pub(super) fn parse_address(text: &str) -> Result<SocketAddr, Failure> {
    let wrong = || Failure::usage("--iscsi takes HOST:PORT, such as 192.0.2.1:3260");
    let address = text.to_socket_addrs().map_err(|_| wrong())?.next().ok_or_else(wrong)?;
    // It would take any free port, and nobody could learn which one.
    if address.port() == 0 { Err(wrong()) } else { Ok(address) }
}

/// Refuses missing programs before anything is served.
pub(super) fn check() -> Result<(), Failure> {
    for program in ["tgtd", "tgtadm"] {
        let run = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if run.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Err(Failure::new(Exit::Failed, format!("--iscsi needs {program}, which is not installed"))
                .advise("install tgt (Debian: tgt; Fedora: scsi-target-utils)"));
        }
    }
    Ok(())
}

impl Iscsi {
    /// Starts `tgtd`, with a target for each volume.
    pub(super) fn start(
        address: SocketAddr,
        chap: Chap,
        files: &Path,
        serial: String,
        volumes: &[VolumeEntry],
        out: &Output,
    ) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::of(Exit::Failed, &error).while_doing("cannot run tgtd");
        let private = private_folder()?;
        let mut command = match Command::new("setpriv").arg("--version").stdout(Stdio::null()).status() {
            Ok(_) => {
                let mut command = Command::new("setpriv");
                command.args(["--pdeathsig", "KILL", "tgtd"]);
                command
            }
            Err(_) => Command::new("tgtd"),
        };
        command.args(["-f", "--iscsi", &format!("portal={address}")]);
        command.env("TGT_IPC_SOCKET", private.join("tgtd"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(failed)?;
        let targets = Mutex::default();
        let mut iscsi =
            Self { child, private, files: files.to_owned(), chap, address, serial, targets, out: out.clone() };
        let mut waited = Duration::ZERO;
        while iscsi.adm(&["--mode", "system", "--op", "show"]).is_err() {
            if waited >= PATIENT || !matches!(iscsi.child.try_wait(), Ok(None)) {
                return Err(Failure::new(Exit::Failed, format!("tgtd does not listen on {address}"))
                    .advise("it needs root, and an address that no other program uses"));
            }
            std::thread::sleep(LOOK);
            waited += LOOK;
        }
        iscsi.adm(&[
            "--mode",
            "account",
            "--op",
            "new",
            "--user",
            &iscsi.chap.user,
            "--password",
            iscsi.chap.secret(),
        ])?;
        iscsi.refresh(volumes)?;
        Ok(iscsi)
    }

    /// Makes the targets those of these volumes.
    pub(super) fn refresh(&self, volumes: &[VolumeEntry]) -> Result<(), Failure> {
        let mut targets = self.targets.lock();
        let is_same = |id: u32, target: &Target| {
            let same = |volume: &VolumeEntry| volume.name == target.volume && volume.size == target.size;
            volumes.iter().any(|volume| volume.id == id && same(volume))
        };
        let gone: Vec<_> =
            targets.known.iter().filter(|(id, target)| !is_same(**id, target)).map(|(id, _)| *id).collect();
        for id in gone {
            if let Some(target) = targets.known.remove(&id) {
                self.adm(&["--mode", "target", "--op", "delete", "--force", "--tid", &target.id.to_string()])?;
            }
        }
        let taken: Vec<_> = targets.known.values().map(|target| target.name.clone()).collect();
        let names = names::of(volumes, &taken);
        for (volume, name) in volumes.iter().zip(names) {
            if targets.known.contains_key(&volume.id) {
                continue;
            }
            targets.next += 1;
            let target = Target { id: targets.next, name, volume: volume.name.clone(), size: volume.size };
            self.add(volume, &target)?;
            targets.known.insert(volume.id, target);
        }
        Ok(())
    }

    fn add(&self, volume: &VolumeEntry, target: &Target) -> Result<(), Failure> {
        let (id, file) = (target.id.to_string(), self.files.join(&volume.name));
        let of_target = |words: &[&str]| {
            let mut all = words.to_vec();
            all.extend(["--tid", &id]);
            self.adm(&all)
        };
        of_target(&["--mode", "target", "--op", "new", "--targetname", &target.name])?;
        let file = file.to_string_lossy();
        of_target(&[
            "--mode",
            "logicalunit",
            "--op",
            "new",
            "--lun",
            "1",
            "--bstype",
            "rdwr",
            "--backing-store",
            &file,
        ])?;
        let serial = format!("{}{:08x}", self.serial, volume.id);
        let params = format!(
            "vendor_id=LARDER,product_id=VOLUME,scsi_sn={serial},scsi_id=larder-{serial},thin_provisioning=1,readonly=0"
        );
        of_target(&["--mode", "logicalunit", "--op", "update", "--lun", "1", "--params", &params])?;
        // Before anybody can connect.
        of_target(&["--mode", "account", "--op", "bind", "--user", &self.chap.user])?;
        of_target(&["--mode", "target", "--op", "bind", "--initiator-address", "ALL"])
    }

    /// The target of a volume.
    pub(super) fn target(&self, volume: u32) -> Option<String> {
        self.targets.lock().known.get(&volume).map(|target| target.name.clone())
    }

    /// The address for clients.
    pub(super) fn portal(&self) -> String {
        match self.address {
            SocketAddr::V6(address) if !address.ip().is_unspecified() => address.to_string(),
            address => format!("{}:{}", host_of(&address), address.port()),
        }
    }

    /// What to type on a client for one of its targets.
    pub(super) fn lines(&self, target: &str) -> Vec<(&'static str, String)> {
        let portal = self.portal();
        let node = format!("iscsiadm -m node -T {target} -p {portal}");
        let set = |name: &str, value: &str| format!("{node} --op update -n node.session.auth.{name} -v {value}");
        vec![
            ("find the iSCSI targets", format!("iscsiadm -m discovery -t sendtargets -p {portal}")),
            (
                "log in, with the password of the CHAP file",
                format!(
                    "{}\n{}\n{}\n{node} --login",
                    set("authmethod", "CHAP"),
                    set("username", &self.chap.user),
                    set("password", "PASSWORD")
                ),
            ),
        ]
    }

    /// Runs `tgtadm`.
    fn adm(&self, words: &[&str]) -> Result<(), Failure> {
        let mut command = Command::new("tgtadm");
        command.args(["--lld", "iscsi"]).args(words).env("TGT_IPC_SOCKET", self.private.join("tgtd"));
        let failed = |why: String| {
            // The words may have the password.
            let what = words.get(1..4).unwrap_or_default().join(" ");
            Failure::new(Exit::Failed, format!("tgtadm {what}: {why}"))
        };
        let run = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output();
        let ran = run.map_err(|error| failed(error.to_string()))?;
        if ran.status.success() {
            return Ok(());
        }
        let error = String::from_utf8_lossy(&ran.stderr);
        Err(failed(error.trim().lines().last().unwrap_or("it failed").to_owned()))
    }

    fn has_ended(&mut self) -> bool {
        let mut waited = Duration::ZERO;
        while matches!(self.child.try_wait(), Ok(None)) {
            if waited >= PATIENT {
                return false;
            }
            std::thread::sleep(LOOK);
            waited += LOOK;
        }
        true
    }
}

impl Drop for Iscsi {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let ids: Vec<_> = self.targets.lock().known.values().map(|target| target.id.to_string()).collect();
            for id in ids {
                // The signals below end it in any case.
                drop(self.adm(&["--mode", "target", "--op", "delete", "--force", "--tid", &id]));
            }
            drop(self.adm(&["--mode", "system", "--op", "delete"]));
            if matches!(self.child.try_wait(), Ok(None)) {
                // It may end by itself meanwhile.
                let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            }
            if !self.has_ended() {
                self.out.warn("tgtd does not end; it is killed");
                drop(self.child.kill());
                drop(self.child.wait());
            }
        }
        // tgtd leaves its socket, and a lock beside it.
        drop(std::fs::remove_dir_all(&self.private));
    }
}
