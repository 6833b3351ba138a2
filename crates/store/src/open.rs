//! From a location to a transport: which client, with which credentials, from which variables.
//!
//! Every cloud client gets the same treatment: its own retries and its own time limit are off (both are ours, see
//! `retry` and `patience`), plain HTTP is allowed only where the user has written `http://`, objects are deleted one by
//! one (the bulk call is missing on some S3 servers), and payloads are signed, so a server notices a damaged upload.

mod aws;

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::memory::InMemory;
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

use crate::error::{StoreError, StoreErrorKind, StoreOp};
use crate::layer::Layer;
use crate::local::LocalFolder;
use crate::location::Location;
use crate::options::StoreOptions;
use crate::remote::{ListOrder, Remote};

/// The variables that say how to reach a store. A value of its own, so that tests need not touch the process's.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment(BTreeMap<String, String>);

impl Environment {
    /// The process's variables. Those that are not UTF-8 are none of ours.
    pub(crate) fn of_process() -> Self {
        Self(
            std::env::vars_os()
                .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
        )
    }

    /// A variable; empty counts as unset.
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn with_prefix(&self, prefix: &'static str) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .filter(move |(key, value)| key.starts_with(prefix) && !value.is_empty())
            .map(|(k, v)| (k.as_str(), v.as_str()))
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(variables: [(&str, &str); N]) -> Self {
        Self(variables.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }
}

/// Why a location cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum OpenProblem {
    #[error(
        "{endpoint} is plain HTTP to another machine; write the location as s3:http://host/bucket/prefix if that is meant"
    )]
    PlainHttp { endpoint: String },
    #[error("no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE")]
    NoCredentials,
    #[error("{present} is set, {missing} is not")]
    HalfCredentials { present: &'static str, missing: &'static str },
    #[error("profile {profile:?} has no access key in {path}")]
    NoProfile { profile: String, path: String },
    #[error("cannot read {path}: {error}")]
    Unreadable { path: String, error: String },
    #[error("{path} holds no certificate")]
    NoCertificate { path: String },
}

/// Makes the transport for a location. Sends nothing.
pub(crate) fn transport(
    location: &Location,
    options: &StoreOptions,
    env: &Environment,
) -> Result<Arc<dyn Layer>, StoreError> {
    let invalid = |error: Box<dyn std::error::Error + Send + Sync>| {
        StoreError::new(StoreOp::Open, &location.to_string(), StoreErrorKind::Invalid).because(error)
    };
    let remote = |store: Arc<dyn object_store::ObjectStore>, prefix: &str| -> Arc<dyn Layer> {
        Arc::new(Remote::new(store, prefix, ListOrder::Ascending))
    };
    match location {
        Location::Local(path) => {
            let path = std::path::absolute(path).map_err(|error| invalid(error.into()))?;
            Ok(Arc::new(LocalFolder::new(&path)))
        }
        Location::Memory => Ok(remote(Arc::new(InMemory::new()), "")),
        Location::S3 { endpoint, bucket, prefix } => {
            let builder =
                aws::builder(endpoint.as_deref(), bucket, options, env).map_err(|problem| invalid(problem.into()))?;
            Ok(remote(Arc::new(builder.build().map_err(|error| invalid(error.into()))?), prefix))
        }
        Location::Azure { container, prefix } => {
            let builder = azure(container, options, env);
            Ok(remote(Arc::new(builder.build().map_err(|error| invalid(error.into()))?), prefix))
        }
        Location::Gcs { bucket, prefix } => {
            let builder = gcs(bucket, options, env);
            Ok(remote(Arc::new(builder.build().map_err(|error| invalid(error.into()))?), prefix))
        }
    }
}

fn azure(container: &str, options: &StoreOptions, env: &Environment) -> MicrosoftAzureBuilder {
    let mut builder = MicrosoftAzureBuilder::new().with_client_options(client(options)).with_retry(no_retry());
    for (key, value) in env.with_prefix("AZURE_") {
        if let Ok(key) = key.to_ascii_lowercase().parse::<AzureConfigKey>() {
            builder = builder.with_config(key, value);
        }
    }
    builder.with_container_name(container)
}

fn gcs(bucket: &str, options: &StoreOptions, env: &Environment) -> GoogleCloudStorageBuilder {
    let mut builder = GoogleCloudStorageBuilder::new().with_client_options(client(options)).with_retry(no_retry());
    if let Some(path) = env.get("GOOGLE_APPLICATION_CREDENTIALS") {
        builder = builder.with_application_credentials(path);
    }
    for (key, value) in env.with_prefix("GOOGLE_") {
        if let Ok(key) = key.to_ascii_lowercase().parse::<GoogleConfigKey>() {
            builder = builder.with_config(key, value);
        }
    }
    builder.with_bucket_name(bucket)
}

/// The part of the settings that all HTTP clients share.
fn client(options: &StoreOptions) -> ClientOptions {
    ClientOptions::new()
        .with_user_agent(object_store::HeaderValue::from_static(concat!("larder/", env!("CARGO_PKG_VERSION"))))
        .with_timeout_disabled()
        .with_connect_timeout(options.attempt_timeout.min(std::time::Duration::from_secs(10)))
        .with_pool_max_idle_per_host(options.concurrency.get())
}

/// Turns the client's own retries off: it would hide that a conditional put met its own first attempt.
fn no_retry() -> RetryConfig {
    RetryConfig { backoff: BackoffConfig::default(), max_retries: 0, retry_timeout: std::time::Duration::ZERO }
}
