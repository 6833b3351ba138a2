//! Passwords are stretched in a child process.
//!
//! argon2id needs 64 MiB for a moment. A process that once had them would count as that large as
//! long as it lives, and servers and workers live long. So this program starts itself again, sends
//! the password through a socket, and gets 32 bytes back.
//!
//! The child has no variables, no arguments but one word, and no file but this socket. It locks and
//! wipes what it holds as its parent does (`larder_secret`), and ends. Where no child can be
//! started (no `/proc`, a limit on processes), the password is stretched here.
//!
//! For a moment after its start the child is dumpable, as every program. So it says when it no
//! longer is and nobody traces it, and only then gets the password. It is a socket because another
//! process of the user can open a pipe of a dumpable one through `/proc`, and would share it.

#![expect(unsafe_code, reason = "descriptors that others left open are closed by a system call without a safe form")]

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

use larder_format::key_file::{KdfCost, StretchError, stretch_by, stretch_here};
use larder_secret::SecretBytes;
use zeroize::Zeroizing;

/// The argument that makes this program the child.
const WORD: &str = "__stretch-password";
/// This program, also if its file was replaced meanwhile.
const SELF: &str = "/proc/self/exe";
/// Costs and salt, before the password.
const HEAD_LEN: usize = 12 + 32;
/// Bytes of the longest password, as `password` limits it.
const PASSWORD_MAX: usize = 64 << 10;
const KEY_LEN: usize = 32;
/// What the child says first: it is closed to others.
const READY: u8 = b'r';
/// The first descriptor that is none of the child's own.
const FIRST_FOREIGN: libc::c_int = 3;
/// Descriptors that are closed one by one where the kernel cannot close a range (before 5.9).
const CLOSED_ONE_BY_ONE: libc::c_int = 1024;

/// From now on, passwords are stretched in a child process.
pub(crate) fn set_up() {
    stretch_by(stretch);
}

/// Whether this process is such a child.
pub(crate) fn is_child() -> bool {
    let mut args = std::env::args_os().skip(1);
    args.next().is_some_and(|word| word == WORD) && args.next().is_none()
}

/// The child: reads the request, answers, and says how it went.
pub(crate) fn answer() -> i32 {
    close_foreign();
    let mut answer = io::stdout().lock();
    if is_traced() || answer.write_all(&[READY]).and_then(|()| answer.flush()).is_err() {
        return 1;
    }
    match try_answer(io::stdin().lock(), answer) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

fn try_answer(request: impl Read, mut answer: impl Write) -> io::Result<()> {
    let request = SecretBytes::read(request, HEAD_LEN + PASSWORD_MAX)?;
    let (head, password) = request.split_at_checked(HEAD_LEN).ok_or(io::ErrorKind::UnexpectedEof)?;
    let number = |at: usize| head[at..at + 4].try_into().map(u32::from_le_bytes).unwrap_or_default();
    let cost = KdfCost { memory_kib: number(0), passes: number(4), lanes: number(8) };
    let salt = head[12..].try_into().map_err(io::Error::other)?;
    let key = stretch_here(cost, &salt, password).map_err(io::Error::other)?;
    answer.write_all(&key[..])?;
    answer.flush()
}

/// Whether another process has attached to this one, or that cannot be known.
fn is_traced() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_none_or(|tracer| tracer.trim() != "0")
}

/// Closes everything that the parent's own parent left open for it.
fn close_foreign() {
    // SAFETY: nothing of this process has opened a descriptor yet, so no value owns one of these.
    unsafe {
        if libc::syscall(libc::SYS_close_range, FIRST_FOREIGN, u32::MAX, 0) != 0 {
            for descriptor in FIRST_FOREIGN..CLOSED_ONE_BY_ONE {
                libc::close(descriptor);
            }
        }
    }
}

/// How it was stretched elsewhere; `None`: no child can do it.
fn stretch(cost: KdfCost, salt: &[u8; 32], password: &[u8]) -> Result<Option<Zeroizing<[u8; KEY_LEN]>>, StretchError> {
    match in_child(cost, salt, password) {
        Ok((status, key)) => key_of(status, &key),
        Err(error) => {
            tracing::debug!(%error, "no process can be started for the password; it is stretched in this one");
            Ok(None)
        }
    }
}

fn in_child(cost: KdfCost, salt: &[u8; 32], password: &[u8]) -> io::Result<(ExitStatus, SecretBytes)> {
    if password.len() > PASSWORD_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut request = SecretBytes::with_capacity(HEAD_LEN + password.len())?;
    for number in [cost.memory_kib, cost.passes, cost.lanes] {
        request.write_all(&number.to_le_bytes())?;
    }
    request.write_all(salt)?;
    request.write_all(password)?;
    let (mut ours, its) = UnixStream::pair()?;
    let mut command = Command::new(SELF);
    command.arg(WORD).env_clear().current_dir("/").stderr(Stdio::null());
    command.stdin(OwnedFd::from(its.try_clone()?)).stdout(OwnedFd::from(its));
    let mut child = command.spawn()?;
    // It still holds the child's ends, which would keep the socket open.
    drop(command);
    // It may have ended already: its status says more than a broken socket.
    let mut ready = [0];
    let key = match ours.read_exact(&mut ready) {
        Ok(()) if ready == [READY] => {
            let asked = ours.write_all(&request).and_then(|()| ours.shutdown(Shutdown::Write));
            asked.and_then(|()| SecretBytes::read(ours, KEY_LEN)).unwrap_or_default()
        }
        _ => SecretBytes::default(),
    };
    match child.wait() {
        Ok(status) => Ok((status, key)),
        // Who started this process may ignore the ends of children. A whole key is an answer.
        Err(_) if key.len() == KEY_LEN => Ok((ExitStatus::from_raw(0), key)),
        Err(error) => Err(error),
    }
}

/// What the child has answered. One that was killed would have been this process: to try it here is
/// no use. Any other end says that the program was not this one (an emulator, a loader).
fn key_of(status: ExitStatus, key: &[u8]) -> Result<Option<Zeroizing<[u8; KEY_LEN]>>, StretchError> {
    if let Some(signal) = status.signal() {
        // The kernel kills so when memory ends. Other signals are sent by somebody.
        let why =
            if signal == libc::SIGKILL { "; is there too little memory? It needs 64 MiB for a moment" } else { "" };
        return Err(StretchError { how: format!("was ended by signal {signal}{why}") });
    }
    match key.try_into() {
        Ok(key) if status.success() => Ok(Some(Zeroizing::new(key))),
        _ => {
            tracing::debug!(%status, "the process for the password did not answer; it is stretched in this one");
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(cost: KdfCost, password: &[u8]) -> Vec<u8> {
        let numbers = [cost.memory_kib, cost.passes, cost.lanes].map(u32::to_le_bytes).concat();
        [&numbers[..], &[7; 32], password].concat()
    }

    #[test]
    fn the_child_answers_what_this_process_would_find() {
        for password in [&b""[..], b"secret", &[1; PASSWORD_MAX]] {
            let mut answer = Vec::new();
            try_answer(&request(KdfCost::TEST, password)[..], &mut answer).expect("answered");
            assert_eq!(answer, *stretch_here(KdfCost::TEST, &[7; 32], password).expect("stretched"));
        }
    }

    #[test]
    fn bad_requests_have_no_answer() {
        let whole = request(KdfCost::TEST, b"");
        let greedy = request(KdfCost { memory_kib: u32::MAX, ..KdfCost::TEST }, b"");
        let long = request(KdfCost::TEST, &[1; PASSWORD_MAX + 1]);
        for request in [&whole[..HEAD_LEN - 1], &b""[..], &greedy, &long] {
            let mut answer = Vec::new();
            try_answer(request, &mut answer).expect_err("refused");
            assert!(answer.is_empty());
        }
    }

    #[test]
    fn the_end_of_the_child_decides() {
        let key = [5; KEY_LEN];
        let done = ExitStatus::from_raw(0);
        assert_eq!(key_of(done, &key).expect("an answer").as_deref(), Some(&key));
        for (status, key) in [(done, &key[1..]), (done, &[]), (ExitStatus::from_raw(1 << 8), &key[..])] {
            assert_eq!(key_of(status, key), Ok(None));
        }
        let killed = key_of(ExitStatus::from_raw(9), &[]).expect_err("killed");
        assert!(
            killed.to_string().ends_with("by signal 9; is there too little memory? It needs 64 MiB for a moment"),
            "{killed}"
        );
        let asked = key_of(ExitStatus::from_raw(15), &[]).expect_err("ended");
        assert!(asked.to_string().ends_with("ended by signal 15"), "{asked}");
    }
}
