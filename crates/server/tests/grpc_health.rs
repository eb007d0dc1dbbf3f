//! `grpc.health.v1`, asked by a real client.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod grpc_common;

use sluicegate_server::grpc::GrpcLimits;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus::{
    self, NotServing, ServiceUnknown, Serving,
};
use tonic_health::pb::health_client::HealthClient;

use grpc_common::plain::Plain;
use grpc_common::{raw, server};

fn ask(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

#[tokio::test]
async fn a_check_tells_how_the_service_is() {
    let server = server(GrpcLimits::default()).await;
    let mut client = HealthClient::new(server.channel().await);
    let mut check = async |service: &str| -> Result<ServingStatus, Status> {
        Ok(client.check(ask(service)).await?.into_inner().status())
    };
    let names = ["ratelimit", "envoy.service.ratelimit.v3.RateLimitService"];
    assert_eq!(check("").await.unwrap(), Serving);
    for name in names {
        assert_eq!(check(name).await.unwrap(), Serving);
    }
    let unknown = check("somebody.Else").await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    assert!(unknown.message().contains("somebody.Else"));
    server.service.health().drain();
    assert_eq!(check("").await.unwrap(), Serving, "that it answers shows it");
    for name in names {
        assert_eq!(check(name).await.unwrap(), NotServing);
    }
    drop(client);
    server.end().await;
}

#[tokio::test]
async fn a_watch_tells_of_every_change_until_the_server_stops() {
    let server = server(GrpcLimits::default()).await;
    let mut client = HealthClient::new(server.channel().await);
    let mut watch = client.watch(ask("ratelimit")).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), Serving);
    // No change of the health.
    server.service.health().rules_loaded(7);
    server.service.health().drain();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), NotServing);
    let mut unknown = client.watch(ask("somebody.Else")).await.unwrap().into_inner();
    assert_eq!(unknown.message().await.unwrap().unwrap().status(), ServiceUnknown);
    // The client stays, and yet it ends.
    server.end().await;
    for mut watch in [watch, unknown] {
        assert_eq!(watch.message().await.unwrap_err().code(), Code::Unavailable);
    }
}

#[tokio::test]
async fn there_are_no_more_watchers_than_there_may_be() {
    let server = server(GrpcLimits { watches: 1, ..GrpcLimits::default() }).await;
    let mut client = HealthClient::new(server.channel().await);
    let mut first = client.watch(ask("")).await.unwrap().into_inner();
    assert_eq!(first.message().await.unwrap().unwrap().status(), Serving);
    let second = client.watch(ask("")).await.unwrap_err();
    assert_eq!(second.code(), Code::ResourceExhausted);
    drop((first, client));
    server.end().await;
}

#[tokio::test]
async fn a_list_has_every_name() {
    let server = server(GrpcLimits::default()).await;
    let mut client = Plain::connect(server.address).await;
    let listed = client.call("/grpc.health.v1.Health/List", raw::framed(0, &[])).await.unwrap();
    assert_eq!(listed.status, "0");
    let entry = |name: &str, status: u8| {
        let name_bytes = u8::try_from(name.len()).unwrap();
        let entry = [&[0x0A, name_bytes], name.as_bytes(), &[0x12, 2, 0x08, status]].concat();
        [&[0x0A, u8::try_from(entry.len()).unwrap()], &*entry].concat()
    };
    let entries = ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"];
    let expected: Vec<u8> = entries.into_iter().flat_map(|name| entry(name, 1)).collect();
    assert_eq!(listed.message, raw::framed(0, &expected));
    drop(client);
    server.end().await;
}

#[tokio::test]
async fn what_is_no_health_check_is_told() {
    let server = server(GrpcLimits::default()).await;
    let mut client = Plain::connect(server.address).await;
    for bad in [&[0x0A, 5, b'a'][..], &[0x10, 1], &[0x0A, 1, 0xFF]] {
        let told = client.call("/grpc.health.v1.Health/Check", raw::framed(0, bad)).await.unwrap();
        assert_eq!(told.status, "13", "{bad:?}");
    }
    drop(client);
    server.end().await;
}
