//! This node: health, store, rules.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use sluicegate_rulestore::NodeInfo;

use super::layout::ConsolePage;
use super::parts::{Column, load_problems, since, table, when};
use crate::admin::{AdminInner, Caller};
use crate::health::StoreState;

pub(super) async fn page(State(admin): State<Arc<AdminInner>>, caller: Caller) -> Response {
    let page = ConsolePage { title: "Nodes", path: "/console/nodes", caller: &caller };
    let others = match admin.app.rule_store() {
        Some(store) => store.nodes().await,
        None => Ok(Vec::new()),
    };
    let content = html! {
        section #nodes data-fragment="" {
            (this_node(&admin))
            @match &others {
                Ok(nodes) => { (fleet(nodes)) }
                Err(error) => { p.problem { "The list of nodes cannot be read: " (error) } }
            }
        }
    };
    page.render(&content).into_response()
}

/// The nodes that follow the same database of rules.
fn fleet(nodes: &[NodeInfo]) -> Markup {
    if nodes.is_empty() {
        return html! {
            p.hint { "Nodes that take their rules from one PostgreSQL are listed here; this one takes them from elsewhere." }
        };
    }
    html! {
        h2 { "Nodes with the same rules" }
        (table("Nodes", None, &[Column::Text("Node"), Column::Number("Revision"), Column::Text("Hash of the enforced rules"), Column::Text("Last seen")], &html! {
                    @for node in nodes {
                        tr {
                            th scope="row" { (node.name) " " span.hint { (node.node) } }
                            td.number { @match node.revision { Some(revision) => { (revision) } None => { "none" } } }
                            td { code { (node.digest) } }
                            td { (when(node.last_seen)) }
                        }
                    }
                }))
    }
}

fn this_node(admin: &AdminInner) -> Markup {
    let (health, engine) = (admin.app.health(), admin.app.engine());
    let (state, now) = (health.state(), engine.now());
    let rules = engine.snapshot();
    let reason = state.unready_reason();
    let load = health.last_load();
    html! {
        h2 { "This node" }
        @match reason {
            None => { p.good { "Ready." } }
            Some(reason) => { p.problem role="alert" { "Not ready: " (reason) "." } }
        }
        (load_problems(admin))
        table {
            tbody {
                tr { th scope="row" { "Version" } td { (env!("CARGO_PKG_VERSION")) } }
                tr {
                    th scope="row" { "Rules" }
                    td { (rules.rules().rules().len()) ", hash " code { (format!("{:016x}", rules.rules().digest())) } }
                }
                tr {
                    th scope="row" { "Loaded" }
                    td {
                        @match load.succeeded_at {
                            Some(at) => { (since(at, now)) }
                            None => { "not yet" }
                        }
                    }
                }
                tr {
                    th scope="row" { "Store" }
                    td {
                        @match state.store {
                            None => { "memory of this node" }
                            Some(StoreState::Connecting) => { "Redis: connecting" }
                            Some(StoreState::Up) => { "Redis: up" }
                            Some(StoreState::Down) => { "Redis: down; the failure policy of each rule applies" }
                        }
                    }
                }
                tr {
                    th scope="row" { "Identities in memory" }
                    td { (engine.memory().entries()) " of at most " (engine.memory().entries_max()) }
                }
                tr {
                    th scope="row" { "Load signal" }
                    td {
                        @match engine.load() {
                            Some(load) => { (load as f64 / 10.0) " % of the capacity" }
                            None => { "none" }
                        }
                    }
                }
            }
        }
    }
}
