//! Account, credentials and address of Azure Blob Storage, from the variables that other tools read
//! as well.
//!
//! | what       | named by (the first that is set counts)                                                              |
//! |------------|------------------------------------------------------------------------------------------------------|
//! | everything | `AZURE_STORAGE_CONNECTION_STRING`; what it does not say comes from the others                         |
//! | account    | `AZURE_STORAGE_ACCOUNT_NAME`, `AZURE_STORAGE_ACCOUNT`, `AZURE_ACCOUNT_NAME`                            |
//! | key        | `AZURE_STORAGE_ACCOUNT_KEY`, `AZURE_STORAGE_ACCESS_KEY`, `AZURE_STORAGE_KEY`, `AZURE_ACCOUNT_KEY`      |
//! | SAS        | `AZURE_STORAGE_SAS_TOKEN`, `AZURE_STORAGE_SAS_KEY`, `AZURE_ACCOUNT_SAS`                                |
//! | address    | `AZURE_STORAGE_ENDPOINT`, `AZURE_ENDPOINT`, `AZURE_STORAGE_SERVICE_ENDPOINT`; `AZURE_ENDPOINT_SUFFIX`  |
//! | identities | `AZURE_CLIENT_ID`, `AZURE_CLIENT_SECRET`, `AZURE_TENANT_ID` and what else the client library knows     |
//!
//! Without a key, a SAS or an identity, Azure's own address is asked with the identity of the
//! machine. On any other address there is none to ask for, and asking would only take long to fail.

use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};

use super::{Environment, OpenProblem, speaks_http};
use crate::options::StoreOptions;

const STRING: &str = "AZURE_STORAGE_CONNECTION_STRING";
const ACCOUNT: [&str; 3] = ["AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT", "AZURE_ACCOUNT_NAME"];
const KEY: [&str; 5] = [
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_MASTER_KEY",
    "AZURE_STORAGE_KEY",
    "AZURE_ACCOUNT_KEY",
];
const SAS: [&str; 3] = ["AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY", "AZURE_ACCOUNT_SAS"];
const ENDPOINT: [&str; 3] = ["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT", "AZURE_STORAGE_SERVICE_ENDPOINT"];
const SUFFIX: [&str; 1] = ["AZURE_ENDPOINT_SUFFIX"];

pub(super) fn builder(
    container: &str,
    options: &StoreOptions,
    env: &Environment,
) -> Result<MicrosoftAzureBuilder, OpenProblem> {
    let string = ConnectionString::of(env)?;
    let mut builder = MicrosoftAzureBuilder::new();
    for (key, value) in env.with_prefix("AZURE_") {
        if let Ok(key) = key.to_ascii_lowercase().parse::<AzureConfigKey>()
            && !decided_here(&key)
        {
            builder = builder.with_config(key, value);
        }
    }
    let account = string.account.or(env.first(&ACCOUNT));
    if let Some(account) = account {
        builder = builder.with_account(account);
    }
    // A connection string that has a key is not mixed with another's: the key of one account opens
    // no other.
    let named = string.key.is_some() || string.sas.is_some();
    if let Some(key) = string.key.or(env.first(&KEY).filter(|_| !named)) {
        builder = builder.with_access_key(key);
    } else if let Some(sas) = string.sas.or(env.first(&SAS).filter(|_| !named)) {
        builder = builder.with_config(AzureConfigKey::SasKey, sas);
    } else if string.endpoint.or(env.first(&ENDPOINT)).is_some() && !string.emulator && !has_identity(env) {
        return Err(OpenProblem::NoAzureCredentials);
    }

    let mut client = super::client(options, env)?;
    let connector = super::identity::connector(options, env, None, None)?;
    let suffix = string.suffix.or(env.first(&SUFFIX));
    let endpoint = match (string.endpoint.or(env.first(&ENDPOINT)), suffix, account) {
        (Some(endpoint), ..) => Some(endpoint.trim_end_matches('/').to_owned()),
        (None, Some(suffix), Some(account)) => {
            Some(format!("https://{account}.blob.{}", suffix.trim_start_matches('.')))
        }
        (None, ..) => None,
    };
    if let Some(endpoint) = endpoint {
        client = client.with_allow_http(speaks_http(&endpoint));
        builder = builder.with_endpoint(endpoint);
    }
    if string.emulator {
        builder = builder.with_use_emulator(true);
    }
    Ok(builder
        .with_container_name(container)
        .with_client_options(client)
        .with_http_connector(connector)
        .with_retry(super::no_retry()))
}

/// Settings that a variable must not change directly: those that follow from the location, and
/// those that are read here.
fn decided_here(key: &AzureConfigKey) -> bool {
    use AzureConfigKey as Key;
    matches!(key, Key::AccountName | Key::AccessKey | Key::SasKey | Key::Endpoint | Key::ContainerName | Key::Client(_))
}

/// Whether something other than a key or a SAS authenticates the client, or nothing needs to.
fn has_identity(env: &Environment) -> bool {
    [
        "AZURE_CLIENT_ID",
        "AZURE_STORAGE_CLIENT_ID",
        "AZURE_STORAGE_TOKEN",
        "AZURE_FEDERATED_TOKEN_FILE",
        "AZURE_MSI_ENDPOINT",
        "AZURE_IDENTITY_ENDPOINT",
        "AZURE_CREDENTIAL_TYPE",
        "AZURE_USE_AZURE_CLI",
        "AZURE_SKIP_SIGNATURE",
        "AZURE_STORAGE_USE_EMULATOR",
    ]
    .iter()
    .any(|key| env.get(key).is_some())
}

/// The output of the portal and of `az storage account show-connection-string`: `Name=value`
/// between semicolons.
#[derive(Default)]
struct ConnectionString<'a> {
    account: Option<&'a str>,
    key: Option<&'a str>,
    sas: Option<&'a str>,
    endpoint: Option<&'a str>,
    suffix: Option<&'a str>,
    emulator: bool,
}

impl<'a> ConnectionString<'a> {
    fn of(env: &'a Environment) -> Result<Self, OpenProblem> {
        let mut string = Self::default();
        for part in env.get(STRING).unwrap_or_default().split(';').map(str::trim).filter(|part| !part.is_empty()) {
            // Only the name is shown: the value may be a key.
            let (name, value) = part.split_once('=').ok_or(OpenProblem::ConnectionString)?;
            match name.to_ascii_lowercase().as_str() {
                "accountname" => string.account = Some(value),
                "accountkey" => string.key = Some(value),
                "sharedaccesssignature" => string.sas = Some(value),
                "blobendpoint" => string.endpoint = Some(value),
                "endpointsuffix" => string.suffix = Some(value),
                "usedevelopmentstorage" => string.emulator = value.eq_ignore_ascii_case("true"),
                // Queues, tables, and the scheme, which the endpoint says too.
                _ => {}
            }
        }
        Ok(string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(env: &Environment) -> Result<MicrosoftAzureBuilder, OpenProblem> {
        builder("box", &StoreOptions::default(), env)
    }

    fn value(env: &Environment, key: AzureConfigKey) -> Option<String> {
        built(env).expect("builds").get_config_value(&key)
    }

    #[test]
    fn every_tools_names_are_known() {
        use AzureConfigKey as Key;
        for account in ACCOUNT {
            for key in KEY {
                let env = Environment::from([(account, "shop"), (key, "a2V5")]);
                assert_eq!(value(&env, Key::AccountName).as_deref(), Some("shop"), "{account}");
                assert_eq!(value(&env, Key::AccessKey).as_deref(), Some("a2V5"), "{key}");
                assert!(built(&env).expect("builds").build().is_ok());
            }
        }
        for sas in SAS {
            let env = Environment::from([(ACCOUNT[0], "shop"), (sas, "?sv=1&sig=x")]);
            assert_eq!(value(&env, Key::SasKey).as_deref(), Some("?sv=1&sig=x"), "{sas}");
        }
        for endpoint in ENDPOINT {
            let env = Environment::from([(ACCOUNT[0], "shop"), (KEY[0], "a2V5"), (endpoint, "http://far.example/")]);
            assert_eq!(value(&env, Key::Endpoint).as_deref(), Some("http://far.example"), "{endpoint}");
        }
        let env = Environment::from([(ACCOUNT[0], "shop"), (KEY[0], "a2V5"), (SUFFIX[0], "core.chinacloudapi.cn")]);
        assert_eq!(value(&env, Key::Endpoint).as_deref(), Some("https://shop.blob.core.chinacloudapi.cn"));
    }

    #[test]
    fn a_connection_string_goes_before_the_rest_and_is_not_mixed() {
        use AzureConfigKey as Key;
        let whole =
            "DefaultEndpointsProtocol=http;AccountName=shop;AccountKey=a2V5PT0=;BlobEndpoint=http://127.0.0.1:1/shop;";
        let env = Environment::from([(STRING, whole), (ACCOUNT[0], "other"), (KEY[0], "b3RoZXI=")]);
        assert_eq!(value(&env, Key::AccountName).as_deref(), Some("shop"));
        // Only the first sign of equality divides: keys end in some.
        assert_eq!(value(&env, Key::AccessKey).as_deref(), Some("a2V5PT0="));
        assert_eq!(value(&env, Key::Endpoint).as_deref(), Some("http://127.0.0.1:1/shop"));

        let by_sas = "AccountName=shop;SharedAccessSignature=sv=1&sig=a%3D;EndpointSuffix=core.windows.net";
        let env = Environment::from([(STRING, by_sas), (KEY[0], "b3RoZXI=")]);
        assert_eq!(value(&env, Key::SasKey).as_deref(), Some("sv=1&sig=a%3D"));
        assert_eq!(value(&env, Key::AccessKey), None);
        assert_eq!(value(&env, Key::Endpoint).as_deref(), Some("https://shop.blob.core.windows.net"));

        let env = Environment::from([(STRING, "UseDevelopmentStorage=true")]);
        assert!(built(&env).expect("builds").build().is_ok(), "the emulator's account is known to all");
        let env = Environment::from([(STRING, "secret")]);
        let Err(problem) = built(&env) else { panic!("not a connection string") };
        assert!(!problem.to_string().contains("secret"), "{problem}");
    }

    #[test]
    fn another_address_wants_credentials_at_once() {
        let env = Environment::from([(ACCOUNT[0], "shop"), (ENDPOINT[0], "http://127.0.0.1:1/shop")]);
        assert_eq!(built(&env).map(drop), Err(OpenProblem::NoAzureCredentials));
        let env = Environment::from([(ACCOUNT[0], "shop")]);
        assert_eq!(built(&env).map(drop), Ok(()), "the machine may have an identity");
    }

    #[test]
    fn no_variable_changes_the_container_or_the_time_limits() {
        let env = Environment::from([
            (ACCOUNT[0], "shop"),
            (KEY[0], "a2V5"),
            ("AZURE_CONTAINER_NAME", "elsewhere"),
            ("AZURE_TIMEOUT", "1 second"),
            ("AZURE_ALLOW_HTTP", "true"),
        ]);
        assert_eq!(value(&env, AzureConfigKey::ContainerName).as_deref(), Some("box"));
        let client = |key| value(&env, AzureConfigKey::Client(key));
        assert_eq!(client(object_store::ClientConfigKey::Timeout), None);
        assert_eq!(client(object_store::ClientConfigKey::AllowHttp).as_deref(), Some("false"));
    }
}
