//! Memory for passwords and keys: locked, in no core dump, and overwritten before it is returned.
//! And the names of environment variables that have them ([`variables`]).
//!
//! [`Pages`] are whole pages of their own, because the kernel locks whole pages and counts no
//! locks: two secrets in one page would unlock one another. [`SecretBytes`] is a byte string in
//! them. It has a fixed capacity, so it never moves and leaves no copy behind.
//!
//! A small `RLIMIT_MEMLOCK` is no error. Pages that cannot be locked are used all the same, and
//! the kernel may write them to swap.

mod bytes;
mod pages;
pub mod variables;

pub use bytes::SecretBytes;
pub use pages::Pages;
