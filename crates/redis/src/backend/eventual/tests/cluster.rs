//! On a Cluster every call holds keys of one slot.

use sluicegate_testkit::redis::Cluster;

use super::*;

#[tokio::test]
async fn identities_of_many_slots_are_told_each_to_where_they_lie() {
    let cluster = Cluster::start();
    let rule = rule(vec![fixed(10, YEARS)]);
    let url = cluster.url().to_owned();
    let [one, two] = [(); 2].map(|()| Peer::new(&url, &rule, Span::from_secs(60)));
    let ids: Vec<String> = (0..40).map(|number| format!("user {number}")).collect();
    for (cost, name) in ids.iter().enumerate() {
        assert!(one.allows(name, cost as u64 % 10 + 1).await);
    }
    one.eventual.close().await;
    for (cost, name) in ids.iter().enumerate() {
        assert_eq!(two.left(name).await, 9 - cost as i64 % 10, "{name}");
    }
}
