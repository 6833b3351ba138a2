//! Network block devices: a server for anything that implements [`Export`], and a client.
//!
//! The protocol is NBD in its form "fixed newstyle", over Unix sockets and TCP, with TLS.
//! `docs/nbd.md` has what is spoken and all limits. This crate knows nothing of Larder.
//!
//! ```no_run
//! use std::sync::Arc;
//! use larder_nbd::{Limits, MemoryExport, Server, Single};
//!
//! let export = Arc::new(MemoryExport::new(1 << 30));
//! let server = Server::new(Arc::new(Single::new("disk", export)), Limits::default());
//! server.listen_unix("/run/disk.sock".as_ref())?;
//! // Until the program is to end:
//! server.shutdown()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod client;
pub mod codec;
mod export;
mod memory;
mod server;
mod tls;
mod wire;

pub use export::{
    Abilities, BASE_ALLOCATION, BlockSizes, ErrorCode, Export, ExportError, Exports, Extent, Listed, Single, Zeroing,
};
pub use memory::MemoryExport;
pub use server::{Limits, Server};
pub use tls::{ClientTls, ServerTls, TlsError};
