//! One order: from the account to the certificate.

use std::sync::Arc;
use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error, Identifier,
    NewOrder, Order, OrderStatus, RetryPolicy,
};
use sluicegate_config::gateway::listener::{AcmeChallenge, AcmeConfig};

use super::challenge::{Challenges, PendingChallenge};
use sluicegate_server::https_client::describe;

/// Of the verification, and of the issuance.
const POLL: RetryPolicy = RetryPolicy::new().timeout(Duration::from_secs(120));

const ACCOUNT_UNKNOWN: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// Why there is no certificate.
#[derive(Debug)]
pub(super) struct OrderError {
    pub(super) reason: String,
    /// The authority does not know the account.
    pub(super) is_account_unknown: bool,
}

impl From<String> for OrderError {
    fn from(reason: String) -> Self {
        Self { reason, is_account_unknown: false }
    }
}

impl From<Error> for OrderError {
    fn from(error: Error) -> Self {
        let is_account_unknown = matches!(&error, Error::Api(problem) if problem.r#type.as_deref() == Some(ACCOUNT_UNKNOWN));
        Self { reason: describe(&error), is_account_unknown }
    }
}

/// Orders a certificate; private key and chain.
pub(super) async fn order(
    account: &Account,
    config: &AcmeConfig,
    domain: &str,
    replaces: Option<CertificateIdentifier<'static>>,
    challenges: &Arc<Challenges>,
) -> Result<String, OrderError> {
    let mut order = begin(account, config, domain, replaces).await?;
    let mut pending = Vec::new();
    let issued = async {
        prepare(&mut order, config.challenge, challenges, &mut pending).await?;
        issue(&mut order).await
    };
    let issued = issued.await;
    for challenge in pending {
        challenge.end().await;
    }
    issued
}

async fn begin(
    account: &Account,
    config: &AcmeConfig,
    domain: &str,
    replaces: Option<CertificateIdentifier<'static>>,
) -> Result<Order, Error> {
    let identifiers = [Identifier::Dns(domain.to_owned())];
    let new_order = || {
        let new = NewOrder::new(&identifiers);
        match &config.profile {
            Some(profile) => new.profile(profile),
            None => new,
        }
    };
    if let Some(id) = replaces {
        // Refused if the authority does not know the certificate, or it was replaced already.
        match account.new_order(&new_order().replaces(id)).await {
            Err(Error::Api(problem)) if problem.status != Some(429) => {}
            Err(Error::Unsupported(_)) => {}
            ordered => return ordered,
        }
    }
    account.new_order(&new_order()).await
}

/// Has the authority verify the control of the name.
async fn prepare(
    order: &mut Order,
    challenge: AcmeChallenge,
    challenges: &Arc<Challenges>,
    pending: &mut Vec<PendingChallenge>,
) -> Result<(), OrderError> {
    let (kind, name) = match challenge {
        AcmeChallenge::Http01 => (ChallengeType::Http01, "http-01"),
        AcmeChallenge::TlsAlpn01 => (ChallengeType::TlsAlpn01, "tls-alpn-01"),
    };
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        match authorization.status {
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            status => return Err(format!("the authorization is {status:?}").into()),
        }
        let handle = authorization.challenge(kind.clone());
        let mut handle =
            handle.ok_or_else(|| format!("the authority does not offer `{name}`; use another"))?;
        let value = handle.key_authorization();
        pending.push(match challenge {
            AcmeChallenge::Http01 => challenges.add_token(&handle.token, &value).await?,
            AcmeChallenge::TlsAlpn01 => {
                challenges.add_certificate(&handle.identifier().to_string(), &value)?
            }
        });
        handle.set_ready().await?;
    }
    Ok(())
}

/// Waits for the verification, and for the certificate.
async fn issue(order: &mut Order) -> Result<String, OrderError> {
    match order.poll_ready(&POLL).await {
        Ok(OrderStatus::Ready) => {}
        polled => {
            return Err(match (rejection(order).await, polled) {
                (Some(reason), _) => reason.into(),
                (None, Err(error)) => error.into(),
                (None, Ok(status)) => format!("the order is {status:?}").into(),
            });
        }
    }
    let key = order.finalize().await?;
    let chain = order.poll_certificate(&POLL).await?;
    Ok(format!("{key}{chain}"))
}

/// Why the authority did not accept a challenge.
async fn rejection(order: &mut Order) -> Option<String> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.ok()?;
        let state = authorization.refresh().await.ok()?;
        let problem = state.challenges.iter().find_map(|challenge| challenge.error.as_ref());
        if let Some(problem) = problem {
            return Some(problem.to_string());
        }
    }
    None
}
