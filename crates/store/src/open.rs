//! From a location to a transport: which client, with which credentials, from which variables.
//!
//! Every cloud client gets the same treatment. Its own retries and its own time limit are off (both
//! are ours, see `retry` and `stall_timeout`). Plain HTTP is spoken only where the user has written
//! `http://`. Objects are deleted one by one, because the bulk call is missing on some S3 servers.
//! Payloads are signed, so a server notices a damaged upload.

mod aws;
mod azure;
mod gcs;
mod identity;
mod post;
mod roots;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use object_store::client::HttpConnector;
use object_store::memory::InMemory;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};

use crate::cold::Classes;
use crate::error::{StoreError, StoreOp};
use crate::error_kind::StoreErrorKind;
use crate::layer::Layer;
use crate::local::LocalFolder;
use crate::location::Location;
use crate::options::StoreOptions;
use crate::remote::{ListOrder, Remote};
use crate::sftp::Sftp;

pub use post::{Post, post};

/// The variables that say how to reach a store: `AWS_*`, `AZURE_*`, `GOOGLE_*`,
/// `STORAGE_EMULATOR_HOST` and `HOME`.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

/// Keys may be among the values, so only the names are shown.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Environment {
    /// The process's variables. Those that are not UTF-8 are none of ours.
    pub fn of_process() -> Self {
        let utf8 = |(key, value): (OsString, OsString)| Some((key.into_string().ok()?, value.into_string().ok()?));
        Self(std::env::vars_os().filter_map(utf8).collect())
    }

    /// The same with some variables replaced or added.
    #[must_use]
    pub fn with(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        self.0.extend(variables);
        self
    }

    /// The server of S3 that the variables name; `None` is Amazon's.
    pub fn s3_endpoint(&self) -> Option<&str> {
        self.first(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
    }

    /// A variable; empty counts as unset.
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The first of these variables that is set.
    fn first(&self, keys: &[&str]) -> Option<&str> {
        keys.iter().find_map(|key| self.get(key))
    }

    fn with_prefix(&self, prefix: &'static str) -> impl Iterator<Item = (&str, &str)> {
        let set = self.0.iter().filter(move |(key, value)| key.starts_with(prefix) && !value.is_empty());
        set.map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(variables: [(&str, &str); N]) -> Self {
        Self(variables.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }
}

/// Why a location cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum OpenProblem {
    #[error("no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE")]
    NoCredentials,
    #[error("no credentials: set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN")]
    NoAzureCredentials,
    #[error("AZURE_STORAGE_CONNECTION_STRING is not made of Name=value parts between semicolons")]
    ConnectionString,
    #[error("{present} is set, {missing} is not")]
    HalfCredentials { present: &'static str, missing: &'static str },
    #[error("profile {profile:?} has no access key in {path}")]
    NoProfile { profile: String, path: String },
    #[error("cannot read {path}: {error}")]
    Unreadable { path: String, error: String },
    #[error("cannot read {path}, which AWS_CA_BUNDLE names: {error}")]
    CaBundle { path: String, error: String },
    #[error("{path}, which AWS_CA_BUNDLE names, holds no certificate in PEM")]
    NoCertificate { path: String },
    #[error("cannot read the certificates of authorities from {path}: {error}")]
    Authorities { path: String, error: String },
    #[error("{path} holds no certificate in PEM")]
    NoAuthority { path: String },
    #[error("cannot use the client's certificate of {path}: {error}")]
    Identity { path: String, error: String },
}

/// Whether an error of opening names the variable that is missing or wrong. Advice about
/// credentials would add nothing.
pub fn names_variable(error: &StoreError) -> bool {
    let problem = error.source.as_deref().and_then(|source| source.downcast_ref());
    problem.is_some_and(|problem| match problem {
        OpenProblem::NoCredentials
        | OpenProblem::NoAzureCredentials
        | OpenProblem::CaBundle { .. }
        | OpenProblem::NoCertificate { .. }
        | OpenProblem::Authorities { .. }
        | OpenProblem::NoAuthority { .. }
        | OpenProblem::Identity { .. } => true,
        OpenProblem::ConnectionString
        | OpenProblem::HalfCredentials { .. }
        | OpenProblem::NoProfile { .. }
        | OpenProblem::Unreadable { .. } => false,
    })
}

/// Makes the transport for a location, which sets `keeps_versions` and `is_rclone` once it knows.
/// Sends nothing.
pub(crate) fn transport(
    location: &Location,
    options: &StoreOptions,
    env: &Environment,
    keeps_versions: &Arc<AtomicBool>,
    is_rclone: &Arc<AtomicBool>,
) -> Result<Arc<dyn Layer>, StoreError> {
    let invalid = |error: Box<dyn std::error::Error + Send + Sync>| {
        StoreError::new(StoreOp::Open, &location.to_string(), StoreErrorKind::Invalid).because(error)
    };
    let remote = |store: Arc<dyn ObjectStore>, prefix: &str| -> Arc<dyn Layer> {
        // Amazon's directory buckets are the one known store that lists without order; their names
        // end so.
        let order = match location {
            Location::S3 { bucket, .. } if bucket.ends_with("--x-s3") => ListOrder::Unknown,
            _ => ListOrder::Ascending,
        };
        let remote = Remote::new(store, prefix, order);
        let class = options.s3.storage_class.clone().filter(|_| matches!(location, Location::S3 { .. }));
        let remote = remote.with_data_class(class);
        match location {
            // Google numbers every object, whether it keeps the old ones or not.
            Location::Gcs { .. } => Arc::new(remote),
            _ => Arc::new(remote.telling_versions(keeps_versions.clone())),
        }
    };
    match location {
        Location::Local(path) => {
            let path = std::path::absolute(path).map_err(|error| invalid(error.into()))?;
            Ok(Arc::new(LocalFolder::new(&path)))
        }
        Location::Sftp(server) => match Sftp::new(server, &options.sftp, options.jitter_seed) {
            Ok(sftp) => Ok(Arc::new(sftp)),
            Err(problem) => Err(invalid(problem.into())),
        },
        Location::Memory => Ok(remote(Arc::new(InMemory::new()), "")),
        Location::S3 { endpoint, bucket, prefix } => {
            let builder = aws::builder(endpoint.as_deref(), bucket, options, env, is_rclone.clone())
                .map_err(|problem| invalid(problem.into()))?;
            Ok(remote(Arc::new(builder.build().map_err(|error| invalid(error.into()))?), prefix))
        }
        Location::Azure { container, prefix } => {
            let builder = azure::builder(container, options, env).map_err(|problem| invalid(problem.into()))?;
            Ok(remote(Arc::new(builder.build().map_err(|error| invalid(error.into()))?), prefix))
        }
        Location::Gcs { bucket, prefix } => {
            let builder = gcs::builder(bucket, options, env).map_err(|problem| invalid(problem.into()))?;
            Ok(remote(Arc::new(builder.build().map_err(|error| invalid(error.into()))?), prefix))
        }
    }
}

/// What asks for storage classes, on S3. Sends nothing.
pub(crate) fn classes(
    location: &Location,
    options: &StoreOptions,
    env: &Environment,
) -> Result<Option<Classes>, StoreError> {
    let Location::S3 { endpoint, bucket, prefix } = location else { return Ok(None) };
    let invalid = |error: Box<dyn std::error::Error + Send + Sync>| {
        StoreError::new(StoreOp::Open, &location.to_string(), StoreErrorKind::Invalid).because(error)
    };
    let builder = aws::builder(endpoint.as_deref(), bucket, options, env, Arc::default())
        .map_err(|problem| invalid(problem.into()))?;
    let client = aws::client(endpoint.as_deref(), options, env).map_err(|problem| invalid(problem.into()))?;
    let connector = aws::connector(options, env).map_err(|problem| invalid(problem.into()))?;
    let client = connector.connect(&client).map_err(|error| invalid(error.into()))?;
    let s3 = builder.build().map_err(|error| invalid(error.into()))?;
    Ok(Some(Classes { s3, client, prefix: prefix.trim_matches('/').to_owned() }))
}

/// How this program names itself.
const USER_AGENT: &str = concat!("larder/", env!("CARGO_PKG_VERSION"));

/// Time for a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// Connections that are kept for the next requests.
fn idle_connections(options: &StoreOptions) -> usize {
    options.concurrency.get().saturating_add(options.small_concurrency.get())
}

/// The part of the settings that all HTTP clients share.
fn client(options: &StoreOptions, env: &Environment) -> Result<ClientOptions, OpenProblem> {
    let client = ClientOptions::new()
        .with_user_agent(object_store::HeaderValue::from_static(USER_AGENT))
        .with_timeout_disabled()
        .with_connect_timeout(options.attempt_timeout.min(CONNECT_TIME_MAX))
        .with_pool_max_idle_per_host(idle_connections(options));
    roots::with_chosen(roots::with_authorities(client, env), &options.tls)
}

/// Whether an address is plain HTTP. A user who writes `http://` means it: contents are sealed
/// anyway.
fn speaks_http(url: &str) -> bool {
    url.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("http://"))
}

/// Turns the client's own retries off: it would hide that a conditional put met its own first
/// attempt.
fn no_retry() -> RetryConfig {
    RetryConfig { backoff: BackoffConfig::default(), max_retries: 0, retry_timeout: Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::TlsOptions;
    use std::error::Error as _;

    fn opened(location: &str, env: &Environment) -> Result<(), String> {
        let location = location.parse().expect("a location");
        let error = match transport(&location, &StoreOptions::default(), env, &Arc::default(), &Arc::default()) {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        assert_eq!((error.op, error.kind), (StoreOp::Open, StoreErrorKind::Invalid));
        Err(error.source().map(ToString::to_string).unwrap_or_default())
    }

    const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret")];

    fn with_keys(key: &str, value: &str) -> Environment {
        Environment::from([KEYS[0], KEYS[1], (key, value)])
    }

    #[test]
    fn chosen_authorities_are_those_of_every_cloud() {
        let with = |path: &str, accepts_anyone| StoreOptions {
            tls: TlsOptions { authorities: Some(path.into()), accepts_anyone, identity: None },
            ..StoreOptions::default()
        };
        let keys = Environment::from([
            KEYS[0],
            KEYS[1],
            ("AZURE_STORAGE_ACCOUNT_NAME", "a"),
            ("AZURE_STORAGE_ACCOUNT_KEY", "a2V5"),
        ]);
        let opened = |location: &str, options: &StoreOptions| {
            let error =
                transport(&location.parse().expect("a location"), options, &keys, &Arc::default(), &Arc::default())
                    .err()?;
            Some(error.source().map(ToString::to_string).unwrap_or_default())
        };
        for location in ["s3:https://far.example/bucket", "azure://container", "gs://bucket"] {
            let error = opened(location, &with("/no/such/file", false)).expect("not there");
            assert!(error.starts_with("cannot read the certificates of authorities from /no/such/file"), "{error}");
            assert_eq!(
                opened(location, &with("/dev/null", true)).as_deref(),
                Some("/dev/null holds no certificate in PEM")
            );
        }
        let careless = StoreOptions {
            tls: TlsOptions { accepts_anyone: true, ..TlsOptions::default() },
            ..StoreOptions::default()
        };
        for (options, expected) in [(&careless, "true"), (&StoreOptions::default(), "false")] {
            let client = client(options, &keys).expect("good");
            let value = client.get_config_value(&object_store::ClientConfigKey::AllowInvalidCertificates);
            assert_eq!(value.as_deref(), Some(expected));
        }
    }

    #[test]
    fn endpoints_come_from_the_location_or_the_variables() {
        let keys = Environment::from(KEYS);
        for location in
            ["s3:http://far.example/bucket", "s3:https://far.example:9000/bucket", "s3:http://[::1]:9000/bucket"]
        {
            assert_eq!(opened(location, &keys), Ok(()), "{location}");
        }
        assert_eq!(opened("s3://bucket", &with_keys("AWS_ENDPOINT_URL", "http://minio:9000")), Ok(()));
        assert_eq!(opened("s3://bucket", &with_keys("AWS_REGION", "eu-west-1")), Ok(()));
    }

    #[test]
    fn missing_and_half_credentials_are_named() {
        let nobody = Environment::default();
        let error = opened("s3:https://far.example/bucket", &nobody).expect_err("no keys");
        assert!(error.contains("set AWS_ACCESS_KEY_ID"), "{error}");
        let error = opened("s3://bucket", &Environment::from([KEYS[0]])).expect_err("half");
        assert_eq!(error, "AWS_ACCESS_KEY_ID is set, AWS_SECRET_ACCESS_KEY is not");
        let error = opened("s3://bucket", &Environment::from([KEYS[1]])).expect_err("half");
        assert_eq!(error, "AWS_SECRET_ACCESS_KEY is set, AWS_ACCESS_KEY_ID is not");
        // On Amazon's own endpoint the machine may have a role, so asking for credentials is left
        // to the first request.
        assert_eq!(opened("s3://bucket", &nobody), Ok(()));
    }

    #[test]
    fn certificates_and_proxies_come_from_their_variables() {
        let error = opened("s3://bucket", &with_keys("AWS_CA_BUNDLE", "/no/such/file")).expect_err("not there");
        assert!(error.starts_with("cannot read /no/such/file, which AWS_CA_BUNDLE names"), "{error}");
        let error = opened("s3://bucket", &with_keys("AWS_CA_BUNDLE", "/dev/null")).expect_err("empty");
        assert_eq!(error, "/dev/null, which AWS_CA_BUNDLE names, holds no certificate in PEM");
        assert_eq!(opened("s3://bucket", &with_keys("AWS_PROXY_URL", "http://127.0.0.1:3128")), Ok(()));
        opened("s3://bucket", &with_keys("AWS_PROXY_URL", "gopher:no proxy")).expect_err("no proxy");
    }

    #[test]
    fn a_profile_is_read_from_the_users_files() {
        let home = tempfile::tempdir().expect("temporary folder");
        std::fs::create_dir(home.path().join(".aws")).expect("made");
        let credentials = "[default]\naws_access_key_id = d\n\n[work]\n# aws_secret_access_key = wrong\n\
                           aws_access_key_id = w\nAWS_SECRET_ACCESS_KEY=ws\n[empty]\n";
        std::fs::write(home.path().join(".aws/credentials"), credentials).expect("written");
        let home = home.path().to_str().expect("UTF-8");
        let profile = |name| Environment::from([("HOME", home), ("AWS_PROFILE", name)]);
        assert_eq!(opened("s3:https://far.example/bucket", &profile("work")), Ok(()));
        let error = opened("s3:https://far.example/bucket", &profile("empty")).expect_err("no key");
        assert!(error.contains("profile \"empty\" has no access key"), "{error}");
        // The user did not ask for the default profile, so an incomplete one counts as none.
        let error = opened("s3:https://far.example/bucket", &Environment::from([("HOME", home)])).expect_err("no key");
        assert!(error.contains("no credentials"), "{error}");
        let error = opened("s3:https://far.example/bucket", &Environment::from([("AWS_PROFILE", "work")]));
        assert!(error.is_err(), "no home, no file");
    }

    #[test]
    fn variables_are_shown_without_their_values() {
        let shown = format!("{:?}", Environment::from(KEYS));
        assert!(shown.contains("AWS_SECRET_ACCESS_KEY") && !shown.contains("\"secret\""), "{shown}");
    }

    #[test]
    fn the_other_clouds_open_with_their_variables() {
        let azure =
            Environment::from([("AZURE_STORAGE_ACCOUNT_NAME", "account"), ("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")]);
        assert_eq!(opened("azure://box/p", &azure), Ok(()));
        assert!(opened("azure://box/p", &Environment::default()).is_err(), "no account");
        let gcs = Environment::from([("GOOGLE_SERVICE_ACCOUNT", "/no/such/file")]);
        assert!(opened("gs://bucket/p", &gcs).is_err(), "no such key file");
    }
}
