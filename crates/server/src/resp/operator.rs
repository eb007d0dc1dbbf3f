//! Commands of operators: `SG.INSPECT` and `SG.EXPLAIN`. Their replies are the JSON of
//! `/v1/keys/inspect` and `/v1/explain`.

use std::net::IpAddr;

use sluicegate::backend::Call;
use sluicegate::explain::explain_on;

use super::RespServer;
use super::check::RuleCommand;
use super::reply::{Reply, ReplyExtra, RespError};
use super::request::RuleRequest;
use crate::auth::{AuthEndpoint, AuthError};
use crate::http::{EXPLAINED_DESCRIPTORS_MAX, write_inspected};

impl RespServer {
    /// Requires the operator role, by the token of a command unless every client has it.
    fn require_operator(
        &self,
        token: Option<&[u8]>,
        peer: Option<IpAddr>,
    ) -> Result<(), RespError> {
        if self.is_open {
            return Ok(());
        }
        let (Some(secret), Some(token)) = (&self.operator_token, token) else {
            return Err(RespError::no_operator(self.operator_token.is_some()));
        };
        let is_right = || str::from_utf8(token).is_ok_and(|token| secret.matches(token));
        match self.app.authenticate(AuthEndpoint::Resp, peer, is_right) {
            Ok(()) => Ok(()),
            Err(AuthError::Wrong) => Err(RespError::no_operator(true)),
            Err(AuthError::TooMany) => Err(RespError::overload(
                "ERR too many wrong tokens from this address: this one was not compared; retry in a second",
            )),
        }
    }
}

/// Executes `SG.INSPECT`, or `SG.EXPLAIN`.
pub(super) async fn execute(
    command: RuleCommand,
    rule_request: &RuleRequest<'_>,
    server: &RespServer,
    peer: Option<IpAddr>,
) -> Result<Reply, RespError> {
    server.require_operator(rule_request.options.token, peer)?;
    let descriptors = rule_request.descriptors();
    let request = rule_request.request(&descriptors);
    let engine = server.app.engine();
    let rules = engine.snapshot();
    let json = if command == RuleCommand::Inspect {
        let inspected = engine.inspect(Call::new(&rules, &request, engine.now())).await?;
        server.app.reject_unmatched(&rules, &request, &inspected)?;
        let mut out = vec![b'{'];
        write_inspected(&inspected, &rules, &mut out);
        out.push(b'}');
        String::from_utf8_lossy(&out).into_owned()
    } else {
        let count = descriptors.len();
        if count > EXPLAINED_DESCRIPTORS_MAX {
            return Err(RespError::invalid(format_args!(
                "at most {EXPLAINED_DESCRIPTORS_MAX} descriptors are explained at a time, got {count}"
            )));
        }
        explain_on(engine, &rules, &request).await?.to_json().to_string()
    };
    Ok(Reply { extra: ReplyExtra::Json(json), ..Reply::from([0; 5]) })
}
