//! One server.

use redis::cmd;
use sluicegate_testkit::redis::{Memory, Options, Single};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_answered_and_a_script_is_loaded_once() {
    let server = Single::start();
    let link = open(server.url(), ample());
    // Nothing was waited for; the first call waits for the first connection.
    assert_eq!(count(&link, "visits").await, Ok(1));
    assert_eq!(count(&link, "visits").await, Ok(2));
    server.cli(&["SCRIPT", "FLUSH"]);
    assert_eq!(count(&link, "visits").await, Ok(3));
    let stats = link.stats();
    assert_eq!((stats.calls, stats.scripts_loaded, stats.epoch), (3, 2, 0));
    assert!(link.is_up() && link.slot_of(b"visits").is_none());
    assert!(server.cli(&["CLIENT", "LIST"]).contains("name=sluicegate"));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_have_an_answer_each() {
    let server = Single::start();
    let link = open(server.url(), ample());
    let mut wrong = cmd("LPUSH");
    wrong.arg("visits").arg("x");
    let mut incrby = cmd("INCRBY");
    incrby.arg("visits").arg(3);
    let answers = link.pipeline(b"visits", vec![incrby.clone(), wrong, incrby]).await.unwrap();
    assert_eq!((&answers[0], &answers[2]), (&Ok(Value::Int(3)), &Ok(Value::Int(6))));
    assert!(answers[1].as_ref().unwrap_err().starts_with("WRONGTYPE "), "{answers:?}");
    assert_eq!(link.pipeline(b"visits", Vec::new()).await, Ok(Vec::new()));
    let many = vec![cmd("PING"); 1025];
    assert!(matches!(link.pipeline(b"", many).await, Err(CallError::Refused(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_full_refuses_in_its_own_words() {
    let memory = Memory { max: "1mb".to_owned(), policy: "noeviction".to_owned() };
    let server = Single::with(Options { memory: Some(memory), ..Options::default() });
    let link = open(server.url(), ample());
    let refused = count(&link, "visits").await.unwrap_err();
    let CallError::Refused(words) = &refused else { panic!("{refused:?}") };
    assert!(words.starts_with("OOM command not allowed"), "{words}");
    // It answers, so nothing is wrong with it.
    assert!(link.is_up());
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(count(&link, "visits").await, Ok(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_refuses_in_its_own_words_and_is_looked_at_anew() {
    let primary = Single::start();
    let more = vec![format!("replicaof 127.0.0.1 {}", primary.port())];
    let replica = Single::with(Options { more, ..Options::default() });
    let link = open(replica.url(), ample());
    let refused = count(&link, "visits").await.unwrap_err();
    let CallError::Refused(words) = &refused else { panic!("{refused:?}") };
    assert!(words.starts_with("READONLY "), "{words}");
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(count(&link, "visits").await, Ok(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_waited_for_if_wanted() {
    let primary = Single::start();
    let replicas = Some((1, Duration::from_millis(1)));
    let link = open(primary.url(), LinkOptions { wait_replicas: replicas, ..ample() });
    assert_eq!(count(&link, "visits").await, Ok(1));
    assert_eq!(link.stats().under_replicated, 2, "the script was not known at first");
    assert_eq!(count(&link, "visits").await, Ok(2));
    assert_eq!(link.stats().under_replicated, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_a_cluster_is_no_single_server() {
    let more = vec!["cluster-enabled yes".to_owned()];
    let server = Single::with(Options { more, ..Options::default() });
    let link = open(server.url(), ample());
    assert_eq!(count(&link, "visits").await, Err(CallError::Down), "it has no slots yet");
    let last = &link.stats().servers[0].last_error;
    assert!(last.as_ref().unwrap().starts_with("CLUSTERDOWN "), "{last:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_last_clone_is_dropped_all_connections_are_closed() {
    let server = Single::start();
    let clients = || server.cli(&["CLIENT", "LIST"]).matches("name=sluicegate").count();
    let link = open(server.url(), ample());
    assert_eq!(count(&link, "visits").await, Ok(1));
    let clone = link.clone();
    drop(link);
    assert_eq!(count(&clone, "visits").await, Ok(2));
    drop(clone);
    // The server notices in its own time; a connection that was just being made is one too.
    let gone = (0..10_000).any(|_| clients() == 0);
    assert!(gone, "{} are left", clients());
}
