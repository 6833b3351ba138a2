//! Credentials and address of Google Cloud Storage, from the variables that other tools read as
//! well.
//!
//! | what        | named by (the first that is set counts)                                                              |
//! |-------------|-------------------------------------------------------------------------------------------------------|
//! | credentials | `GOOGLE_ACCESS_TOKEN`, `GOOGLE_BEARER_TOKEN`: a token, for an hour mostly                                |
//! |             | `GOOGLE_SERVICE_ACCOUNT` (a file), `GOOGLE_SERVICE_ACCOUNT_KEY` (its content)                           |
//! |             | `GOOGLE_APPLICATION_CREDENTIALS`: a file with a service account's key or a user's login                 |
//! |             | the login of `gcloud auth application-default login`; else the machine's service account                |
//! | address     | `GOOGLE_BASE_URL`, `STORAGE_EMULATOR_HOST` (an emulator needs no credentials)                           |

use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};

use super::{Environment, OpenProblem, speaks_http};
use crate::options::StoreOptions;

const TOKEN: [&str; 2] = ["GOOGLE_ACCESS_TOKEN", "GOOGLE_BEARER_TOKEN"];
const FILES: [&str; 3] = ["GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "GOOGLE_SERVICE_ACCOUNT_KEY"];
const APPLICATION: &str = "GOOGLE_APPLICATION_CREDENTIALS";

pub(super) fn builder(
    bucket: &str,
    options: &StoreOptions,
    env: &Environment,
) -> Result<GoogleCloudStorageBuilder, OpenProblem> {
    let mut builder = GoogleCloudStorageBuilder::new();
    for (key, value) in env.with_prefix("GOOGLE_") {
        if let Ok(key) = key.to_ascii_lowercase().parse::<GoogleConfigKey>()
            && !decided_here(&key)
        {
            builder = builder.with_config(key, value);
        }
    }
    let emulator = env.get("STORAGE_EMULATOR_HOST").filter(|_| env.get("GOOGLE_BASE_URL").is_none());
    let base = match (env.get("GOOGLE_BASE_URL"), emulator) {
        (Some(base), _) => Some(base.to_owned()),
        (None, Some(host)) if host.contains("://") => Some(host.to_owned()),
        (None, Some(host)) => Some(format!("http://{host}")),
        (None, None) => None,
    };
    if let Some(token) = env.first(&TOKEN) {
        builder = builder.with_bearer_token(token);
    } else if emulator.is_some() && env.first(&FILES).or(env.get(APPLICATION)).is_none() {
        // An emulator accepts any value; without one, the machine's metadata service would be
        // asked.
        builder = builder.with_bearer_token("emulator");
    }
    let mut client = super::client(options, env)?;
    let connector = super::identity::connector(options, env, None, None)?;
    if let Some(base) = base {
        client = client.with_allow_http(speaks_http(&base));
        builder = builder.with_base_url(base.trim_end_matches('/'));
    }
    Ok(builder
        .with_bucket_name(bucket)
        .with_client_options(client)
        .with_http_connector(connector)
        .with_retry(super::no_retry()))
}

/// Settings that a variable must not change directly: those that follow from the location, and
/// those that are read here.
fn decided_here(key: &GoogleConfigKey) -> bool {
    use GoogleConfigKey as Key;
    matches!(key, Key::Bucket | Key::BaseUrl | Key::BearerToken | Key::Client(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(env: &Environment, key: GoogleConfigKey) -> Option<String> {
        builder("bucket", &StoreOptions::default(), env).expect("good").get_config_value(&key)
    }

    #[test]
    fn emulators_and_other_addresses_are_reached_without_credentials_files() {
        for (name, host, base) in [
            ("STORAGE_EMULATOR_HOST", "127.0.0.1:4443", "http://127.0.0.1:4443"),
            ("STORAGE_EMULATOR_HOST", "http://127.0.0.1:4443/", "http://127.0.0.1:4443"),
            ("GOOGLE_BASE_URL", "https://far.example", "https://far.example"),
        ] {
            let env = Environment::from([(name, host)]);
            assert_eq!(value(&env, GoogleConfigKey::BaseUrl).as_deref(), Some(base));
            let token = value(&env, GoogleConfigKey::BearerToken);
            assert_eq!(token.is_some(), name == "STORAGE_EMULATOR_HOST", "only an emulator takes anybody");
            let http = value(&env, GoogleConfigKey::Client(object_store::ClientConfigKey::AllowHttp));
            assert_eq!(http.as_deref(), Some(if base.starts_with("http:") { "true" } else { "false" }));
        }
    }

    #[test]
    fn a_token_goes_before_all_else() {
        for name in TOKEN {
            let env = Environment::from([(name, "token"), ("STORAGE_EMULATOR_HOST", "localhost:1")]);
            assert_eq!(value(&env, GoogleConfigKey::BearerToken).as_deref(), Some("token"));
        }
    }

    #[test]
    fn no_variable_changes_the_bucket_or_the_time_limits() {
        let env = Environment::from([
            ("GOOGLE_BUCKET", "elsewhere"),
            ("GOOGLE_TIMEOUT", "1 second"),
            ("GOOGLE_ALLOW_HTTP", "true"),
        ]);
        assert_eq!(value(&env, GoogleConfigKey::Bucket).as_deref(), Some("bucket"));
        let client = |key| value(&env, GoogleConfigKey::Client(key));
        assert_eq!(client(object_store::ClientConfigKey::Timeout), None);
        assert_eq!(client(object_store::ClientConfigKey::AllowHttp).as_deref(), Some("false"));
    }
}
