//! The configuration of the SDK's clients.

use std::time::Duration;

use aws_config::profile::ProfileFileCredentialsProvider;
use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::sts::AssumeRoleProvider;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, ConfigLoader, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials as _, SharedCredentialsProvider};
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use aws_smithy_types::error::display::DisplayErrorContext;

use super::settings::AwsSettings;
use crate::StreamError;

/// Longest time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time for an answer, but for a request that asks the server to wait.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The name of the session of a role that is assumed, which AWS's audit log shows.
const SESSION_NAME: &str = "belfry";

/// The configuration for clients of `settings`. Nothing is repeated by them unless a call asks for it: what a target did not take is for
/// its caller to judge.
///
/// # Errors
/// When settings exclude each other, a file cannot be read, or no region is known.
pub async fn sdk_config(settings: &AwsSettings) -> Result<SdkConfig, StreamError> {
    settings.check()?;
    let mut loader = loader(settings)?;
    if let (Some(id), Some(secret)) = (&settings.access_key_id, &settings.secret_access_key) {
        let token = settings.session_token.as_ref().map(|token| token.expose().to_owned());
        let fixed = Credentials::new(id, secret.expose(), token, None, "settings");
        loader = loader.credentials_provider(fixed);
    }
    if let Some(profile) = &settings.profile {
        loader = loader.credentials_provider(Box::pin(profile_credentials(profile)).await?);
    }
    // Boxed, as the other futures of the SDK here: they are large, and would be a part of every future above them.
    let config = Box::pin(loader.load()).await;
    if config.region().is_none() {
        return Err(StreamError::Refused(
            "no region is known: set `region`, or AWS_REGION in the environment".to_owned(),
        ));
    }
    let mut service = config.to_builder();
    if let Some(role) = &settings.role {
        service = service.credentials_provider(Box::pin(assumed(role, settings, &config)).await);
    }
    // Not of the configuration above, by which roles are assumed: that is another service.
    if let Some(endpoint) = &settings.endpoint {
        service = service.endpoint_url(endpoint);
    }
    Ok(service.build())
}

/// Credentials of `profile`. The default chain would use the machine's own role in place of a profile that is not there.
async fn profile_credentials(profile: &str) -> Result<SharedCredentialsProvider, StreamError> {
    let provider = ProfileFileCredentialsProvider::builder().profile_name(profile).build();
    let Err(error) = provider.provide_credentials().await else {
        return Ok(SharedCredentialsProvider::new(provider));
    };
    let text =
        format!("the profile {profile} gives no credentials ({})", DisplayErrorContext(&error));
    Err(match error {
        CredentialsError::CredentialsNotLoaded(_) | CredentialsError::InvalidConfiguration(_) => {
            StreamError::Refused(text)
        }
        CredentialsError::ProviderTimedOut(_)
        | CredentialsError::ProviderError(_)
        | CredentialsError::Unhandled(_)
        | _ => StreamError::Unavailable(text),
    })
}

/// Credentials of `role`, assumed with those of `config`, and again before they expire.
async fn assumed(
    role: &str,
    settings: &AwsSettings,
    config: &SdkConfig,
) -> SharedCredentialsProvider {
    let mut config = config.to_builder();
    if let Some(endpoint) = &settings.sts_endpoint {
        config = config.endpoint_url(endpoint);
    }
    let config = config.build();
    let mut role = AssumeRoleProvider::builder(role).configure(&config).session_name(SESSION_NAME);
    if let Some(id) = &settings.external_id {
        role = role.external_id(id);
    }
    let provider = match config.credentials_provider() {
        Some(base) => role.build_from_provider(base).await,
        None => role.build().await,
    };
    SharedCredentialsProvider::new(provider)
}

fn loader(settings: &AwsSettings) -> Result<ConfigLoader, StreamError> {
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(ANSWER_TIMEOUT)
        .build();
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts)
        // Answers are small, and have a time of their own.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    if let Some(region) = &settings.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(profile) = &settings.profile {
        loader = loader.profile_name(profile);
    }
    if let Some(path) = &settings.ca_file {
        let pem = std::fs::read(path).map_err(|error| {
            let file = path.display();
            StreamError::Refused(format!("cannot read the certificates in {file} ({error})"))
        })?;
        loader = loader.http_client(trusting(&pem)?);
    }
    Ok(loader)
}

/// A client that trusts `pem` besides the certificate authorities of the system.
fn trusting(pem: &[u8]) -> Result<SharedHttpClient, StreamError> {
    let store = TrustStore::empty().with_native_roots(true).with_pem_certificate(pem);
    let context = TlsContext::builder().with_trust_store(store).build().map_err(|error| {
        StreamError::Refused(format!("the certificates of `ca_file` cannot be used ({error})"))
    })?;
    let client = aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
        .tls_context(context);
    Ok(client.build_https())
}
