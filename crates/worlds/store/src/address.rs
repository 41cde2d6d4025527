//! Where a store is: `s3://bucket/prefix`, `gs://bucket/prefix` or `azure://container/prefix`, with settings behind a
//! question mark.
//!
//! Who asks never stands there. It comes out of the environment, under the names that the providers' own tools use.

use std::{fmt, net::IpAddr, str::FromStr, sync::Arc, time::Duration};

use object_store::{
    BackoffConfig, ClientOptions, ObjectStore, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    azure::{AzureConfigKey, MicrosoftAzureBuilder},
    gcp::{GoogleCloudStorageBuilder, GoogleConfigKey},
};
use thiserror::Error;

use crate::{Bucket, digest, line::Line};

/// How often a request is sent again, and for how long at most. A lease must outlive it.
const RETRIES: usize = 2;
const RETRYING: Duration = Duration::from_secs(12);

/// Variables of the environment that say who asks, and where.
const AWS: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
];
const GOOGLE: &[&str] =
    &["GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY"];
const AZURE: &[&str] = &[
    "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_TENANT_ID",
    "AZURE_FEDERATED_TOKEN_FILE",
];

/// Who serves a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// S3, of Amazon or of anybody else.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage.
    Azure,
}

/// Where a store in a bucket is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    kind: Kind,
    bucket: String,
    prefix: String,
    endpoint: Option<String>,
    region: Option<String>,
    account: Option<String>,
    path_style: Option<bool>,
    plain_http: bool,
}

/// Why an address cannot be used, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct BadAddress {
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}

fn bad(message: impl Into<String>, remedy: impl Into<String>) -> BadAddress {
    BadAddress { message: message.into(), remedy: remedy.into() }
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let (place, settings) = text.split_once('?').unwrap_or((text, ""));
        let (scheme, rest) = place.split_once("://").unwrap_or(("", place));
        let kind = match scheme {
            "s3" => Kind::S3,
            "gs" => Kind::Google,
            "azure" | "az" => Kind::Azure,
            _ => {
                return Err(bad(
                    format!("`{scheme}://` is no kind of store"),
                    "write `s3://`, `gs://` or `azure://`, or use a directory: `store: {path: .ichor}`",
                ));
            }
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() || !bucket.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) {
            return Err(bad("the store names no bucket", "write it as in `s3://bucket/prefix`"));
        }
        let parts: Vec<&str> = prefix.split('/').filter(|part| !part.is_empty()).collect();
        let is_plain = |part: &&str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._=".contains(&b));
        if !parts.iter().all(|part| is_plain(part) && *part != "." && *part != "..") {
            return Err(bad(
                "the prefix of the store has a character that not every bucket keeps",
                "use letters, digits, `-`, `_`, `.` and `/`",
            ));
        }
        let mut address = Self {
            kind,
            bucket: bucket.to_owned(),
            prefix: parts.join("/"),
            endpoint: None,
            region: None,
            account: None,
            path_style: None,
            plain_http: false,
        };
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            address.set(setting)?;
        }
        Ok(address)
    }
}

impl Address {
    fn set(&mut self, setting: &str) -> Result<(), BadAddress> {
        let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
        let switch = || match value {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(bad(
                format!("`{key}` of the store is neither `true` nor `false`"),
                format!("write `{key}=true`"),
            )),
        };
        match key {
            "endpoint" => self.endpoint = Some(value.to_owned()),
            "region" if self.kind == Kind::S3 => self.region = Some(value.to_owned()),
            "account" if self.kind == Kind::Azure => self.account = Some(value.to_owned()),
            "path_style" if self.kind == Kind::S3 => self.path_style = Some(switch()?),
            "plain_http" => self.plain_http = switch()?,
            // What was written may be a secret that does not belong there.
            _ => {
                return Err(bad(
                    "the store has a setting that is not known",
                    "it takes `endpoint`, `plain_http`, for S3 `region` and `path_style`, for Azure `account`; who \
                     asks comes out of the environment, as in `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`",
                ));
            }
        }
        Ok(())
    }

    /// Returns the same store with one more part at the end of its prefix.
    #[must_use]
    pub fn below(&self, part: &str) -> Self {
        let prefix = if self.prefix.is_empty() { part.to_owned() } else { format!("{}/{part}", self.prefix) };
        Self { prefix, ..self.clone() }
    }

    /// Returns a name for the directory that mirrors this store: for people, and for nobody else's store.
    pub fn slug(&self) -> String {
        let scheme = self.scheme();
        let whole = format!("{scheme}://{}/{}?{:?}", self.bucket, self.prefix, self.endpoint);
        format!("{scheme}-{}-{}", self.bucket, &digest(whole.as_bytes())[..8])
    }

    const fn scheme(&self) -> &'static str {
        match self.kind {
            Kind::S3 => "s3",
            Kind::Google => "gs",
            Kind::Azure => "azure",
        }
    }

    /// Opens the store. Nothing is asked yet.
    pub fn open(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Bucket, BadAddress> {
        let store = match self.kind {
            Kind::S3 => self.s3(variable)?,
            Kind::Google => self.google(variable)?,
            Kind::Azure => self.azure(variable)?,
        };
        Ok(Bucket::new(store, self.prefix.clone()))
    }

    fn s3(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Arc<dyn ObjectStore>, BadAddress> {
        let mut builder = AmazonS3Builder::new().with_bucket_name(&self.bucket);
        let mut endpoint = None;
        for (name, value) in given(AWS, variable) {
            if name.starts_with("AWS_ENDPOINT_URL") && name != "AWS_ENDPOINT_URL_STS" {
                endpoint = Some(value);
            } else if let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() {
                builder = builder.with_config(key, value);
            }
        }
        let endpoint = self.endpoint.clone().or(endpoint);
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        // Servers of others seldom have a name for every bucket, and a region that means something.
        let path_style = self.path_style.unwrap_or(endpoint.is_some());
        builder = builder.with_virtual_hosted_style_request(!path_style);
        let client = client(endpoint.as_deref());
        if let Some(endpoint) = endpoint {
            self.check_endpoint(&endpoint)?;
            builder = builder.with_endpoint(endpoint);
        }
        let built = builder.with_client_options(client).with_http_connector(Line).with_retry(retry()).build();
        built.map(|store| Arc::new(store) as _).map_err(|error| unbuilt(&error))
    }

    fn google(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Arc<dyn ObjectStore>, BadAddress> {
        let mut builder = GoogleCloudStorageBuilder::new().with_bucket_name(&self.bucket);
        for (name, value) in given(GOOGLE, variable) {
            if let Ok(key) = name.to_ascii_lowercase().parse::<GoogleConfigKey>() {
                builder = builder.with_config(key, value);
            }
        }
        if let Some(endpoint) = &self.endpoint {
            self.check_endpoint(endpoint)?;
            builder = builder.with_base_url(endpoint);
        }
        let client = client(self.endpoint.as_deref());
        let built = builder.with_client_options(client).with_http_connector(Line).with_retry(retry()).build();
        built.map(|store| Arc::new(store) as _).map_err(|error| unbuilt(&error))
    }

    fn azure(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Arc<dyn ObjectStore>, BadAddress> {
        let mut builder = MicrosoftAzureBuilder::new().with_container_name(&self.bucket);
        let mut endpoint = None;
        for (name, value) in given(AZURE, variable) {
            if name == "AZURE_STORAGE_ENDPOINT" {
                endpoint = Some(value);
            } else if let Ok(key) = name.to_ascii_lowercase().parse::<AzureConfigKey>() {
                builder = builder.with_config(key, value);
            }
        }
        if let Some(account) = &self.account {
            builder = builder.with_account(account);
        }
        let endpoint = self.endpoint.clone().or(endpoint);
        let client = client(endpoint.as_deref());
        if let Some(endpoint) = endpoint {
            self.check_endpoint(&endpoint)?;
            builder = builder.with_endpoint(endpoint);
        }
        let built = builder.with_client_options(client).with_http_connector(Line).with_retry(retry()).build();
        built.map(|store| Arc::new(store) as _).map_err(|error| unbuilt(&error))
    }

    /// Refuses to send secrets, even encrypted ones, and what proves who asks over a network in plain.
    fn check_endpoint(&self, endpoint: &str) -> Result<(), BadAddress> {
        let host = match endpoint.split_once("://") {
            Some(("https", _)) => return Ok(()),
            Some(("http", rest)) => host_of(rest),
            _ => {
                return Err(bad(
                    "the endpoint of the store is not a URL of `https`",
                    "write it as in `endpoint=https://s3.example:9000`",
                ));
            }
        };
        if self.plain_http || is_loopback(host) {
            return Ok(());
        }
        Err(bad(
            "the endpoint of the store is reached without encryption",
            "use `https://`; if the network is yours alone, add `plain_http=true` to the store",
        ))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme(), self.bucket)?;
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

fn given<'a>(
    names: &'a [&'a str],
    variable: impl Fn(&str) -> Option<String> + 'a,
) -> impl Iterator<Item = (&'a str, String)> {
    names
        .iter()
        .filter_map(move |name| variable(name).filter(|value| !value.is_empty()).map(|value| (*name, value)))
}

fn host_of(rest: &str) -> &str {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, _)) => host,
        None => place.split(':').next().unwrap_or_default(),
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// HTTP without encryption is spoken with an endpoint that was judged, and with nobody that it leads to.
fn client(endpoint: Option<&str>) -> ClientOptions {
    let plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
    ClientOptions::new().with_allow_http(plain)
}

fn retry() -> RetryConfig {
    RetryConfig { backoff: BackoffConfig::default(), max_retries: RETRIES, retry_timeout: RETRYING }
}

/// What the library says may repeat a setting, and none of them is a secret: those come out of the environment.
fn unbuilt(_error: &object_store::Error) -> BadAddress {
    bad(
        "the store cannot be opened with what is known about it",
        "for Azure name the account, as in `azure://container/prefix?account=NAME`; check what the environment says \
         about who asks",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        text.parse().expect(text)
    }

    #[test]
    fn addresses_are_read_and_shown_without_their_settings() {
        let read =
            address("s3://team/ichor/prod?endpoint=https://minio.example:9000&region=eu-1&path_style=false");
        assert_eq!(read.to_string(), "s3://team/ichor/prod");
        assert_eq!(read.below("lab").to_string(), "s3://team/ichor/prod/lab");
        assert_eq!((read.region.as_deref(), read.path_style), (Some("eu-1"), Some(false)));
        assert_eq!(address("azure://box?account=team").below("lab").to_string(), "azure://box/lab");
        assert_ne!(read.slug(), read.below("lab").slug());
        assert_ne!(address("s3://team/a").slug(), address("s3://team/a?endpoint=https://x.example").slug());
    }

    #[test]
    fn what_cannot_be_an_address_is_refused_and_not_repeated() {
        for text in [
            "ftp://a/b",
            "s3://",
            "s3:///prefix",
            "s3://a/../b",
            "s3://a/b c",
            "s3://a?key=TOPSECRET",
            "s3://a?path_style=TOPSECRET",
            "gs://a?region=TOPSECRET",
        ] {
            let refused = text.parse::<Address>().expect_err(text);
            assert!(
                !refused.message.contains("TOPSECRET") && !refused.remedy.contains("TOPSECRET"),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn plain_http_is_for_this_machine_unless_somebody_says_so() {
        let open = |text: &str, from: Option<&str>| {
            address(text).open(|name| match name {
                "AWS_ENDPOINT_URL" => from.map(str::to_owned),
                "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" => Some("x".to_owned()),
                _ => None,
            })
        };
        for text in ["http://127.0.0.1:9000", "http://[::1]:9000", "http://localhost", "https://s3.example"] {
            open(&format!("s3://a?endpoint={text}"), None).expect(text);
            open("s3://a", Some(text)).expect(text);
        }
        for text in
            ["http://10.0.0.1:9000", "http://localhost.example", "http://127.0.0.1@s3.example", "s3.example"]
        {
            open(&format!("s3://a?endpoint={text}"), None).expect_err(text);
            open("s3://a", Some(text)).expect_err(text);
        }
        open("s3://a?endpoint=http://10.0.0.1:9000&plain_http=true", None).expect("said so");
    }
}
