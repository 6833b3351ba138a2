//! Keeps the memory of the process from other programs of the same user and out of core dumps.
//!
//! Key objects and passwords open everything that was ever stored. A program of the same user could
//! read them from a running process with a debugger, or from a core dump. So the process says that
//! it is not dumpable, before it reads any secret. That also forbids others to attach to it.
//!
//! `LARDER_CORE_DUMPS=1` leaves it as other programs are, for the search of faults.

use rustix::process::{DumpableBehavior, Resource, Rlimit};

/// Allows core dumps and debuggers.
const VARIABLE: &str = "LARDER_CORE_DUMPS";

/// Forbids core dumps of this process and access by other processes. Best effort.
pub(crate) fn keep_memory_private() {
    if std::env::var_os(VARIABLE).is_some_and(|value| value == "1") {
        return;
    }
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // The flag is gone in programs that this one starts, such as the source of a dump. They get the
    // lower limit, which they may raise again.
    let limit = rustix::process::getrlimit(Resource::Core);
    let _ = rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), ..limit });
}
