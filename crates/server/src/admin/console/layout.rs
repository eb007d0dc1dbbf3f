//! The frame of all pages: head, navigation, footer.

use maud::{DOCTYPE, Markup, html};

use crate::admin::Caller;

/// Pages of the navigation.
const PAGES: [(&str, &str); 7] = [
    ("/", "Overview"),
    ("/console/rules", "Rules"),
    ("/console/identities", "Identities"),
    ("/console/explain", "Explain"),
    ("/console/revisions", "Revisions"),
    ("/console/nodes", "Nodes"),
    ("/console/audit", "Audit"),
];

/// A page.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConsolePage<'a> {
    pub(super) title: &'a str,
    /// The path of its entry in the navigation.
    pub(super) path: &'a str,
    pub(super) caller: &'a Caller,
}

impl ConsolePage<'_> {
    /// The page with its content.
    pub(super) fn render(self, content: &Markup) -> Markup {
        let Self { title, path, caller } = self;
        frame(
            title,
            &html! {
                a.skip href="#content" { "Skip to content" }
                header {
                    p.brand { "Sluicegate" }
                    nav aria-label="Pages" {
                        ul {
                            @for (target, name) in PAGES {
                                li {
                                    @if target == path { a href=(target) aria-current="page" { (name) } }
                                    @else { a href=(target) { (name) } }
                                }
                            }
                        }
                    }
                    div.caller {
                        span { (caller.name) " (" (caller.role.name()) ")" }
                        @if &*caller.name != "local" {
                            form method="post" action="/console/logout" { button { "Log out" } }
                        }
                    }
                }
                main id="content" tabindex="-1" {
                    h1 { (title) }
                    (content)
                }
                footer {
                    p {
                        "This node's figures, since its start or the stated time. "
                        span data-connection="" role="status" {}
                    }
                }
            },
        )
    }
}

/// A page without navigation.
pub(super) fn frame(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Sluicegate" }
                link rel="icon" href="data:,";
                link rel="stylesheet" href="/console/assets/console.css";
                script type="module" src="/console/assets/live.js" {}
            }
            body { (body) }
        }
    }
}
