//! The first words of the service: where it listens, and what to try.

use sluicegate_server::server::Addresses;

/// A user of the example rules, as somebody asks for it.
const TRY: &str = r#"{"domain":"example","descriptors":[{"user":"me"}]}"#;

pub(super) fn greeting(at: &Addresses, has_rules: bool, json: bool) -> String {
    if json {
        return format!("{}\n", at.to_json());
    }
    let Addresses { grpc, http, admin, resp } = at;
    let mut listening = format!(
        "grpc   {grpc}   Envoy's rate limit service\n\
         http   {http}   /v1/check, /json, /openapi.json\n\
         admin  {admin}   /metrics, /ready, /rlconfig, /config\n"
    );
    if let Some(resp) = resp {
        listening += &format!("resp   {resp}   CL.THROTTLE, SG.CHECK: for clients of Redis\n");
    }
    if has_rules {
        return listening;
    }
    format!(
        "{listening}rules  an example; `--rules PATH` for your own\n\n\
         A user has three requests a minute. Paste this four times:\n\n  \
         curl -i http://{http}/v1/check -d '{TRY}'\n"
    )
}
