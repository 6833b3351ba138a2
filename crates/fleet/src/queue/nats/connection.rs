//! The connection to a NATS server, and the stream of this repository on it.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::context::{CreateStreamError, CreateStreamErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, ServerError, Subscriber};
use larder_format::chain;
use larder_index::Executor;
use larder_store::Repository;
use parking_lot::Mutex;

use super::subjects;
use crate::nats_error::NatsError;

/// How long a request waits for its answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Messages that nobody takes go after this.
const KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Messages of a stream at most.
const MESSAGES_MAX: i64 = 1_000_000;
/// A server that does not answer for twice this long is taken for gone.
const PING: Duration = Duration::from_secs(10);
/// Messages and requests that wait, and bytes of the buffer: the process is to be small, and so are
/// messages.
const WAITING: usize = 256;
/// See [`WAITING`].
const BUFFER: u16 = 8 << 10;
/// Bytes of a message at most, and of all of them: they are names.
const MESSAGE_BYTES: i32 = 512;
/// See [`MESSAGE_BYTES`].
const STREAM_BYTES: i64 = 64 << 20;
/// JetStream is off on the server, or for the account.
const NOT_ENABLED: [u64; 2] = [10076, 10039];

/// Where a server is, and what it asks for.
#[derive(Debug, Clone)]
pub struct NatsOptions {
    /// `nats://HOST[:PORT]`, or `tls://HOST[:PORT]` if nothing may be sent without TLS.
    pub address: String,
    /// A file with credentials: of NATS (`.creds`), a seed of a key, `USER:PASSWORD`, or a token.
    pub credentials: Option<PathBuf>,
    /// A file in PEM with the authorities that the server may have, instead of those of the system.
    pub authorities: Option<PathBuf>,
    /// The present moment of a clock that nobody sets.
    pub now: fn() -> Instant,
}

/// A connection. It comes back by itself when it was lost.
pub struct Nats {
    address: String,
    pub(super) client: Client,
    pub(super) jetstream: Context,
    /// What the server refused last.
    refused: Arc<Mutex<Option<String>>>,
    /// Beginning of all subjects: `larder.` and a name of the repository.
    pub(super) prefix: String,
    pub(super) stream: String,
    pub(super) now: fn() -> Instant,
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nats").field("address", &self.address).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Nats {
    /// Connects to a server, and makes sure that it has the stream of this repository.
    ///
    /// # Errors
    /// The server is not there, or cannot or will not be used.
    pub fn connect(executor: &Executor, repository: &Repository, options: &NatsOptions) -> Result<Self, NatsError> {
        let refused = Arc::new(Mutex::new(None));
        let heard = refused.clone();
        let address = options.address.clone();
        let connect = with_credentials(options)?
            .name("larder")
            .connection_timeout(ANSWER)
            .request_timeout(Some(ANSWER))
            // They may be on other machines, to which no password may go without TLS.
            .ignore_discovered_servers()
            .ping_interval(PING)
            .subscription_capacity(WAITING)
            .client_capacity(WAITING)
            .read_buffer_capacity(BUFFER)
            .no_echo()
            .require_tls(options.address.starts_with("tls://"))
            .event_callback(move |event| {
                match &event {
                    Event::ServerError(ServerError::Other(why)) => *heard.lock() = Some(why.clone()),
                    Event::ServerError(error) => *heard.lock() = Some(error.to_string()),
                    _ => {}
                }
                tracing::debug!(%event, "NATS");
                std::future::ready(())
            });
        let connect = match &options.authorities {
            Some(path) => {
                // The client's error does not name the file.
                std::fs::read(path).map_err(|error| NatsError::File {
                    what: "authorities",
                    path: path.display().to_string(),
                    why: error.to_string(),
                })?;
                connect.add_root_certificates(path.clone())
            }
            None => connect,
        };
        let unreachable = |why: String| NatsError::Unreachable { address: address.clone(), why };
        let client = executor.block_on(async { tokio::time::timeout(2 * ANSWER, connect.connect(&address)).await });
        let client = client.map_err(|_| unreachable(format!("no answer within {} s", 2 * ANSWER.as_secs())))?;
        let client = client.map_err(|error| match error.kind() {
            ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                NatsError::Refused { address: address.clone() }
            }
            ConnectErrorKind::ServerParse => NatsError::Address { address: address.clone(), why: error.to_string() },
            _ => unreachable(chain(&error)),
        })?;
        // It starts a task of its own.
        let mut jetstream = executor.block_on(async { jetstream::new(client.clone()) });
        jetstream.set_timeout(ANSWER);
        let id = data_encoding::HEXLOWER.encode(&blake3::hash(&repository.config().repository.0).as_bytes()[..4]);
        let (prefix, stream) = (format!("larder.{id}"), format!("LARDER_FLEET_{id}"));
        let nats = Self { address, client, jetstream, refused, prefix, stream, now: options.now };
        executor.block_on(nats.make_stream())?;
        Ok(nats)
    }

    /// Makes sure that the server has the stream.
    pub(super) async fn make_stream(&self) -> Result<(), NatsError> {
        let config = Config {
            name: self.stream.clone(),
            subjects: vec![format!("{}.tasks.>", self.prefix)],
            retention: RetentionPolicy::WorkQueue,
            storage: StorageType::File,
            discard: DiscardPolicy::Old,
            max_age: KEPT,
            max_messages: MESSAGES_MAX,
            // The newest offer of a task replaces the last one.
            max_messages_per_subject: 1,
            max_message_size: MESSAGE_BYTES,
            max_bytes: STREAM_BYTES,
            description: Some("tasks of fleet batches; the repository decides what is done".to_owned()),
            ..Config::default()
        };
        match self.jetstream.get_or_create_stream(config).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.of_stream(&error)),
        }
    }

    fn of_stream(&self, error: &CreateStreamError) -> NatsError {
        let address = self.address.clone();
        if let Some(why) = self.refusal() {
            return NatsError::NoRights { address, why };
        }
        match error.kind() {
            CreateStreamErrorKind::JetStreamUnavailable => NatsError::NoJetStream { address },
            CreateStreamErrorKind::JetStream(error) if NOT_ENABLED.contains(&error.error_code().0) => {
                NatsError::NoJetStream { address }
            }
            CreateStreamErrorKind::JetStream(error) => NatsError::NoStream { address, why: error.to_string() },
            _ => NatsError::Unreachable { address, why: chain(error) },
        }
    }

    /// Whether there is a connection at the moment.
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    /// Bounds the time of a request. The client waits for ever for messages that a server lost.
    pub(crate) async fn within<T>(&self, request: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        let answer = tokio::time::timeout(2 * ANSWER, request).await;
        answer.unwrap_or_else(|_| Err(format!("no answer within {} s", 2 * ANSWER.as_secs())))
    }

    /// What the server refused since this was asked last.
    pub(super) fn refusal(&self) -> Option<String> {
        self.refused.lock().take()
    }

    /// The news of all batches of the repository.
    pub(crate) async fn news_of_all(&self) -> Result<Subscriber, String> {
        self.client.subscribe(subjects::all_news(&self.prefix)).await.map_err(|error| chain(&error))
    }

    /// For people.
    pub(super) fn address(&self) -> &str {
        &self.address
    }
}

fn with_credentials(options: &NatsOptions) -> Result<ConnectOptions, NatsError> {
    let NatsOptions { address, credentials, .. } = options;
    let wrong = |why: &str| NatsError::Address { address: address.clone(), why: why.to_owned() };
    let (_, rest) = address
        .split_once("://")
        .filter(|(scheme, _)| ["nats", "tls"].contains(scheme))
        .ok_or_else(|| wrong("write nats://HOST[:PORT] or tls://HOST[:PORT]"))?;
    if rest.is_empty() || rest.starts_with(':') {
        return Err(wrong("it has no host"));
    }
    if rest.contains('@') {
        return Err(wrong("write credentials to a file and name it with --nats-credentials"));
    }
    let Some(path) = credentials else { return Ok(ConnectOptions::new()) };
    let failed = |why: String| NatsError::File { what: "credentials", path: path.display().to_string(), why };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let line = text.trim();
    if line.contains("-----BEGIN NATS USER JWT-----") {
        return ConnectOptions::new().credentials(&text).map_err(|error| failed(error.to_string()));
    }
    if line.is_empty() || line.contains(char::is_whitespace) {
        return Err(failed(
            "it has neither credentials of NATS, nor a seed, USER:PASSWORD or a token in one line".into(),
        ));
    }
    if line.starts_with("SU") && line.len() == SEED_LEN {
        return Ok(ConnectOptions::new().nkey(line.to_owned()));
    }
    // The others are sent as they are.
    if !address.starts_with("tls://") && !is_this_machine(rest) {
        return Err(failed("passwords and tokens are sent only with TLS; write tls:// for nats://".into()));
    }
    Ok(match line.split_once(':') {
        Some((user, password)) => ConnectOptions::new().user_and_password(user.to_owned(), password.to_owned()),
        None => ConnectOptions::new().token(line.to_owned()),
    })
}

/// Characters of the seed of a user's key.
const SEED_LEN: usize = 58;

fn is_this_machine(place: &str) -> bool {
    let host = match place.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => place.split([':', '/']).next().unwrap_or_default(),
    };
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(address: &str, credentials: Option<&str>) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("credentials");
        std::fs::write(&path, credentials.unwrap_or_default()).expect("written");
        let credentials = credentials.map(|_| path);
        let options = NatsOptions { address: address.to_owned(), credentials, authorities: None, now: Instant::now };
        with_credentials(&options).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn addresses_and_credentials_that_are_wrong_are_refused() {
        for address in ["nats://host", "tls://host:4222", "nats://[::1]:4222"] {
            assert_eq!(why(address, None), "", "{address}");
        }
        for address in ["host:4222", "http://host", "ws://host", "nats://", "tls://:4222"] {
            assert!(why(address, None).contains("is no address of a NATS server"), "{address}");
        }
        assert!(why("nats://user:secret@host", None).contains("--nats-credentials"));
        assert!(why("nats://host", Some("two words")).contains("neither"));
        assert!(why("nats://host", Some("")).contains("neither"));
        for secret in ["user:secret", "token"] {
            assert!(why("nats://host", Some(secret)).contains("only with TLS"), "{secret}");
            for address in ["tls://host", "nats://127.0.0.1:4222", "nats://localhost", "nats://[::1]:4222"] {
                assert_eq!(why(address, Some(secret)), "", "{address}");
            }
        }
        assert!(why("nats://host", Some("-----BEGIN NATS USER JWT-----\nx")).contains("credentials in"));
    }
}
