//! The store on a real PostgreSQL, without a service around it.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use sluicegate_config::rules::{Options, Source};
use sluicegate_rulestore::{
    Activation, PostgresOptions, PostgresUrl, Proposal, RevisionKind, RuleStore, StoreError,
    StoreEvent, StoreOptions,
};
use sluicegate_testkit::postgres::Postgres;

type Events = Arc<Mutex<Vec<StoreEvent>>>;

async fn open(url: &str) -> (RuleStore, Events) {
    let events = Events::default();
    let reported = events.clone();
    let options = StoreOptions {
        rules: Options::default(),
        require_approval: false,
        clock: Arc::new(Timestamp::now),
        report: Arc::new(move |event| reported.lock().unwrap().push(event)),
    };
    let url = PostgresUrl::parse(url, None).unwrap();
    let postgres = PostgresOptions { url, cache: None, node_name: "test".to_owned() };
    (RuleStore::postgres(postgres, &options).await.unwrap(), events)
}

fn shop(text: &str) -> Vec<Source> {
    vec![Source { name: "shop.yaml".to_owned(), text: text.to_owned() }]
}

async fn seed(store: &RuleStore) {
    let proposal = Proposal {
        base: None,
        author: "alice".to_owned(),
        note: "first".to_owned(),
        kind: RevisionKind::Import,
        restores: None,
        sources: shop("domain: shop\n"),
        activation: Activation::Now,
    };
    assert_eq!(store.propose(proposal).await.unwrap().number, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_start_together_create_the_tables_once_and_lose_no_edit() {
    const EDITS: usize = 6;

    let server = Postgres::start();
    let url = server.url();
    let stores = [open(&url), open(&url), open(&url)];
    let [one, two, three] = stores;
    let stores = tokio::join!(one, two, three);
    let stores = [stores.0.0, stores.1.0, stores.2.0];
    assert_eq!(server.sql("SELECT count(*) FROM sluicegate_rules_migrations"), "1");
    seed(&stores[0]).await;
    let mut editors = Vec::new();
    for (editor, store) in stores.iter().cloned().enumerate() {
        editors.push(tokio::spawn(async move {
            for edit in 0..EDITS {
                let line = format!("# {editor}-{edit}\n");
                let append = |files: &mut Vec<Source>| {
                    files[0].text.push_str(&line);
                    Ok(())
                };
                store.edit("editor", "append a line", append).await.unwrap();
            }
        }));
    }
    for editor in editors {
        editor.await.unwrap();
    }
    let last = stores[1].revision(1 + 3 * EDITS as u64).await.unwrap();
    assert_eq!(last.sources[0].text.lines().count(), 1 + 3 * EDITS, "{:?}", last.sources);
    let page = stores[2].revisions(None, 100).await.unwrap();
    assert!(page.windows(2).all(|two| two[0].base == Some(two[1].number)), "{page:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_verified_where_it_is_required() {
    let server = Postgres::with_tls();
    let authority = server.authority().display().to_string();
    let url = |parameters: &str| format!("{}?{parameters}", server.url());
    let encrypted = "SELECT count(*) > 0 FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
         WHERE ssl AND application_name = 'sluicegate'";
    for (parameters, is_encrypted) in [
        (format!("sslmode=verify-full&sslrootcert={authority}"), "t"),
        ("sslmode=prefer".to_owned(), "t"),
        ("sslmode=disable".to_owned(), "f"),
    ] {
        let (store, events) = open(&url(&parameters)).await;
        assert!(store.status().is_connected(), "{parameters}: {:?}", events.lock().unwrap());
        assert_eq!(server.sql(encrypted), is_encrypted, "{parameters}");
        drop(store);
        sluicegate_testkit::until("its connection is closed", || {
            (server
                .sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sluicegate'")
                == "0")
                .then_some(())
        });
    }
    let (store, events) = open(&url("sslmode=require")).await;
    assert!(!store.status().is_connected(), "no authority of the system has signed it");
    let events = events.lock().unwrap();
    let [StoreEvent::Disconnected(reason)] = events.as_slice() else { panic!("{events:?}") };
    assert!(reason.contains("UnknownIssuer"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_reported_without_it() {
    let server = Postgres::start();
    let url = server.url().replace("postgres-secret", "wrong-secret");
    let (store, events) = open(&url).await;
    let read = store.revisions(None, 1).await.unwrap_err();
    let shown =
        format!("{:?} {read} {} {store:?}", events.lock().unwrap(), store.overview().location);
    assert!(matches!(read, StoreError::Unavailable(_)), "{read}");
    assert!(shown.contains("password authentication failed"), "{shown}");
    assert!(!shown.contains("wrong-secret"), "{shown}");
}
