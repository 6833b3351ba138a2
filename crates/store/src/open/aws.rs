//! Credentials and address of S3, from the variables and files that other tools read as well.
//!
//! Keys come from `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`. Otherwise, they come from the
//! profile named by `AWS_PROFILE` (else `default`) in `~/.aws/credentials`. Otherwise, on Amazon's
//! own endpoint, they come from the role of the machine, container or web identity. On any other
//! endpoint there is no machine role to ask for, and asking would only take long to fail.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{Certificate, ClientOptions};

use super::{Environment, OpenProblem};
use crate::answers::Looking;
use crate::options::StoreOptions;

const KEY_ID: &str = "AWS_ACCESS_KEY_ID";
const SECRET: &str = "AWS_SECRET_ACCESS_KEY";

pub(super) fn builder(
    endpoint: Option<&str>,
    bucket: &str,
    options: &StoreOptions,
    env: &Environment,
    is_rclone: Arc<AtomicBool>,
) -> Result<AmazonS3Builder, OpenProblem> {
    let custom = endpoint.or(env.s3_endpoint());
    let client = client(endpoint, options, env)?;
    let connector = connector(options, env)?.telling_rclone(is_rclone);
    let mut builder = AmazonS3Builder::new();
    for (key, value) in env.with_prefix("AWS_") {
        if let Ok(key) = key.to_ascii_lowercase().parse::<AmazonS3ConfigKey>()
            && !decided_here(&key)
        {
            builder = builder.with_config(key, value);
        }
    }
    let profile = Profile::of(env)?;
    if let Some((key_id, secret, token)) = keys(&profile, env)? {
        builder = builder.with_access_key_id(key_id).with_secret_access_key(secret);
        if let Some(token) = token {
            builder = builder.with_token(token);
        }
    } else if custom.is_some() && !has_role(env) {
        return Err(OpenProblem::NoCredentials);
    }
    if let Some(region) = env.get("AWS_REGION").or(env.get("AWS_DEFAULT_REGION")).or(profile.get("region")) {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = custom {
        builder = builder.with_endpoint(endpoint);
    }
    Ok(builder
        .with_bucket_name(bucket)
        .with_client_options(client)
        .with_http_connector(connector)
        .with_retry(super::no_retry())
        .with_disable_bulk_delete(true))
}

/// What makes the clients for S3.
pub(super) fn connector(options: &StoreOptions, env: &Environment) -> Result<Looking, OpenProblem> {
    super::identity::connector(options, env, bundle(env)?.as_deref(), env.get("AWS_PROXY_URL"))
}

/// How the server is reached.
pub(super) fn client(
    endpoint: Option<&str>,
    options: &StoreOptions,
    env: &Environment,
) -> Result<ClientOptions, OpenProblem> {
    let mut client = super::client(options, env)?;
    // Requests are signed without showing the key.
    if endpoint.or(env.s3_endpoint()).is_some_and(super::speaks_http) {
        client = client.with_allow_http(true);
    }
    if let Some(proxy) = env.get("AWS_PROXY_URL") {
        client = client.with_proxy_url(proxy);
    }
    for certificate in certificates(env)? {
        client = client.with_root_certificate(certificate);
    }
    Ok(client)
}

/// Settings that a variable must not change: those that follow from the location, and those that
/// safety depends on.
fn decided_here(key: &AmazonS3ConfigKey) -> bool {
    use AmazonS3ConfigKey as Key;
    matches!(
        key,
        Key::AccessKeyId
            | Key::SecretAccessKey
            | Key::Token
            | Key::Region
            | Key::DefaultRegion
            | Key::Bucket
            | Key::Endpoint
            | Key::S3Endpoint
            | Key::ConditionalPut
            | Key::DisableBulkDelete
            | Key::Client(_)
    )
}

/// Key id, secret and session token.
type Keys<'a> = (&'a str, &'a str, Option<&'a str>);

fn keys<'a>(profile: &'a Profile, env: &'a Environment) -> Result<Option<Keys<'a>>, OpenProblem> {
    match (env.get(KEY_ID), env.get(SECRET)) {
        (Some(id), Some(secret)) => return Ok(Some((id, secret, env.get("AWS_SESSION_TOKEN")))),
        (Some(_), None) => return Err(OpenProblem::HalfCredentials { present: KEY_ID, missing: SECRET }),
        (None, Some(_)) => return Err(OpenProblem::HalfCredentials { present: SECRET, missing: KEY_ID }),
        (None, None) => {}
    }
    match (profile.get("aws_access_key_id"), profile.get("aws_secret_access_key")) {
        (Some(id), Some(secret)) => Ok(Some((id, secret, profile.get("aws_session_token")))),
        _ if profile.asked_for => {
            Err(OpenProblem::NoProfile { profile: profile.name.clone(), path: profile.path.clone() })
        }
        _ => Ok(None),
    }
}

/// Whether credentials come from a role, or are not wanted at all.
fn has_role(env: &Environment) -> bool {
    [
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_METADATA_ENDPOINT",
        "AWS_SKIP_SIGNATURE",
    ]
    .iter()
    .any(|key| env.get(key).is_some())
}

/// Certificates to trust besides the system's: a private server's, named as other tools name it.
fn certificates(env: &Environment) -> Result<Vec<Certificate>, OpenProblem> {
    let Some(pem) = bundle(env)? else { return Ok(Vec::new()) };
    Ok(Certificate::from_pem_bundle(pem.as_bytes()).unwrap_or_default())
}

/// The text of the file with these certificates, of which there is one at least.
fn bundle(env: &Environment) -> Result<Option<String>, OpenProblem> {
    let Some(path) = env.get("AWS_CA_BUNDLE") else { return Ok(None) };
    let pem = std::fs::read_to_string(path)
        .map_err(|error| OpenProblem::CaBundle { path: path.to_owned(), error: error.to_string() })?;
    match Certificate::from_pem_bundle(pem.as_bytes()) {
        Ok(certificates) if !certificates.is_empty() => Ok(Some(pem)),
        _ => Err(OpenProblem::NoCertificate { path: path.to_owned() }),
    }
}

fn read(path: &str) -> Result<String, OpenProblem> {
    std::fs::read_to_string(path)
        .map_err(|error| OpenProblem::Unreadable { path: path.to_owned(), error: error.to_string() })
}

/// One section of the credentials file, and of the configuration file beside it.
#[derive(Debug, Default)]
struct Profile {
    name: String,
    path: String,
    /// Whether the user named it: then it has to be there.
    asked_for: bool,
    values: BTreeMap<String, String>,
}

impl Profile {
    fn of(env: &Environment) -> Result<Self, OpenProblem> {
        let asked_for = env.get("AWS_PROFILE").filter(|_| env.get(KEY_ID).is_none());
        let name = asked_for.unwrap_or("default").to_owned();
        let at_home = |file: &str| env.get("HOME").map(|home| format!("{home}/.aws/{file}"));
        let credentials = env.get("AWS_SHARED_CREDENTIALS_FILE").map(str::to_owned).or_else(|| at_home("credentials"));
        let config = env.get("AWS_CONFIG_FILE").map(str::to_owned).or_else(|| at_home("config"));
        let mut profile = Self { name, asked_for: asked_for.is_some(), ..Self::default() };
        if let Some(text) = config.as_deref().and_then(|path| std::fs::read_to_string(path).ok()) {
            profile.take(&text, &format!("profile {}", profile.name));
            profile.take(&text, &profile.name.clone());
        }
        profile.path = credentials.unwrap_or_default();
        match read(&profile.path) {
            Ok(text) => profile.take(&text, &profile.name.clone()),
            Err(problem) if profile.asked_for && profile.values.is_empty() => return Err(problem),
            Err(_) => {}
        }
        Ok(profile)
    }

    /// Takes over the values of one section of an INI file.
    fn take(&mut self, text: &str, section: &str) {
        let mut inside = false;
        for line in text.lines().map(str::trim) {
            if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
                inside = header.trim() == section;
            } else if inside
                && !line.starts_with(['#', ';'])
                && let Some((key, value)) = line.split_once('=')
            {
                self.values.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
            }
        }
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }
}
