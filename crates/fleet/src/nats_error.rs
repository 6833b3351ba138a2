//! Why a NATS server is of no use.

use larder_format::ErrorKind;

/// A server is of no use.
#[derive(Debug, thiserror::Error)]
pub enum NatsError {
    /// The address is none.
    #[error("{address} is no address of a NATS server: {why}")]
    Address {
        /// As given.
        address: String,
        /// One line.
        why: String,
    },
    /// Credentials or authorities cannot be read, or are none.
    #[error("cannot use the NATS {what} in {path}: {why}")]
    File {
        /// `credentials` or `authorities`.
        what: &'static str,
        /// Path of the file.
        path: String,
        /// One line.
        why: String,
    },
    /// No connection.
    #[error("cannot reach the NATS server {address}: {why}; start it, or use --queue store")]
    Unreachable {
        /// Its address.
        address: String,
        /// One line.
        why: String,
    },
    /// The server does not know the credentials.
    #[error("the NATS server {address} does not accept these credentials; name a file with --nats-credentials")]
    Refused {
        /// Its address.
        address: String,
    },
    /// The server cannot store messages.
    #[error("the NATS server {address} has no JetStream (for this account); start it with -js, or use --queue store")]
    NoJetStream {
        /// Its address.
        address: String,
    },
    /// The account may not do what is needed.
    #[error("the NATS server {address} refuses: {why}; allow larder.>, $JS.API.>, $JS.ACK.> and _INBOX.> to this user")]
    NoRights {
        /// Its address.
        address: String,
        /// The words of the server.
        why: String,
    },
    /// The server does not make the stream.
    #[error("the NATS server {address} does not store tasks: {why}; mend that there, or use --queue store")]
    NoStream {
        /// Its address.
        address: String,
        /// The words of the server.
        why: String,
    },
}

impl NatsError {
    /// The reason alone, without address and advice.
    pub(crate) fn why(&self) -> String {
        match self {
            Self::Unreachable { why, .. } | Self::NoRights { why, .. } | Self::NoStream { why, .. } => why.clone(),
            Self::NoJetStream { .. } => "it has no JetStream".to_owned(),
            other => other.to_string(),
        }
    }

    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Address { .. } | Self::NoJetStream { .. } => ErrorKind::Precondition,
            Self::File { .. } | Self::Unreachable { .. } => ErrorKind::Resource,
            Self::Refused { .. } | Self::NoRights { .. } | Self::NoStream { .. } => ErrorKind::Precondition,
        }
    }
}
