//! A client library for Rust, with both protocols, alone and in pipelines, and many at once.

use redis::{Client, Connection, ErrorKind, Value, cmd, pipe};

use crate::service;
use crate::support::service::Service;

fn connected(service: &Service, tail: &str) -> Connection {
    Client::open(format!("redis://{}/{tail}", service.resp)).unwrap().get_connection().unwrap()
}

#[test]
fn commands_are_asked_by_both_protocols() {
    let (service, _folder) = service(&[]);
    for (user, tail) in [("a", ""), ("b", "?protocol=resp3")] {
        let mut client = connected(&service, tail);
        let mut throttle = cmd("CL.THROTTLE");
        throttle.arg(user).arg(1).arg(1).arg(86_400);
        for expected in [[0, 2, 1], [0, 2, 0], [1, 2, 0]] {
            let said: [i64; 5] = throttle.query(&mut client).unwrap();
            assert_eq!(said[..3], expected);
        }
        let check =
            cmd("SG.CHECK").arg("shop").arg(format!("user={user}")).arg("COST").arg(2).clone();
        let passed = |client: &mut Connection| check.query::<[i64; 5]>(client).unwrap()[0] == 0;
        assert!(passed(&mut client) && !passed(&mut client));
        let info: String = cmd("INFO").query(&mut client).unwrap();
        assert!(info.contains("redis_mode:standalone"), "{info}");
        let command: Vec<Value> = cmd("COMMAND").query(&mut client).unwrap();
        assert_eq!(command.len(), 22);
        assert_eq!(cmd("PING").query::<String>(&mut client).unwrap(), "PONG");
    }
}

#[test]
fn a_pipeline_is_answered_in_its_order() {
    let (service, _folder) = service(&[]);
    let mut client = connected(&service, "");
    let mut all = pipe();
    for _ in 0..5_000 {
        all.cmd("CL.THROTTLE").arg("k").arg(9_999).arg(1).arg(86_400);
    }
    let said: Vec<[i64; 5]> = all.query(&mut client).unwrap();
    let left: Vec<i64> = said.iter().map(|said| said[2]).collect();
    assert_eq!(left, (5_000..10_000).rev().collect::<Vec<i64>>());
}

#[test]
fn errors_are_what_libraries_expect() {
    let (service, _folder) = service(&[]);
    let mut client = connected(&service, "");
    let error = cmd("CL.THROTTLE").arg("k").query::<Value>(&mut client).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Server(redis::ServerErrorKind::ResponseError));
    assert!(
        error.to_string().contains("wrong number of arguments for 'cl.throttle' command"),
        "{error}"
    );
    // The connection is as good as before.
    assert_eq!(cmd("PING").query::<String>(&mut client).unwrap(), "PONG");
    let many = connected(&service, "");
    drop(many);
    assert!(Client::open(format!("redis://{}/1", service.resp)).unwrap().get_connection().is_err());
}

#[test]
fn a_password_is_shown_at_the_beginning() {
    let (service, _folder) = service(&[("SLUICEGATE_RESP_PASSWORD", "sesame")]);
    let open = |user: &str, tail: &str| {
        Client::open(format!("redis://{user}@{}/{tail}", service.resp)).unwrap().get_connection()
    };
    for tail in ["", "?protocol=resp3"] {
        for user in [":sesame", "default:sesame"] {
            let mut client = open(user, tail).unwrap();
            assert_eq!(cmd("PING").query::<String>(&mut client).unwrap(), "PONG");
        }
        assert!(open(":wrong", tail).is_err() && open("other:sesame", tail).is_err());
    }
}

#[test]
fn what_is_reserved_is_settled_and_what_is_asked_again_is_charged_once() {
    let (service, _folder) = service(&[]);
    for (user, tail) in [("a", ""), ("b", "?protocol=resp3")] {
        let mut client = connected(&service, tail);
        let user = format!("user={user}");
        let mut reserve = cmd("SG.RESERVE");
        reserve.arg("shop").arg(&user).arg("COST").arg(3).arg("ID").arg(format!("try of {user}"));
        type Reserved = (i64, i64, i64, i64, i64, Option<String>);
        let reserved: Reserved = reserve.query(&mut client).unwrap();
        assert_eq!((reserved.0, reserved.1, reserved.2), (0, 3, 0));
        assert_eq!(reserve.query::<Reserved>(&mut client).unwrap(), reserved);
        let denied: Reserved = cmd("SG.RESERVE").arg("shop").arg(&user).query(&mut client).unwrap();
        assert_eq!((denied.0, denied.5), (1, None));
        let commit = cmd("SG.COMMIT").arg(reserved.5).arg(1).clone();
        let committed: [i64; 6] = commit.query(&mut client).unwrap();
        assert_eq!((committed[2], committed[5]), (2, 2));
        let again = commit.query::<Value>(&mut client).unwrap_err();
        assert_eq!(again.code(), Some("SETTLED"), "{again}");
        let waited: Reserved = cmd("SG.WAIT").arg("shop").arg(&user).query(&mut client).unwrap();
        assert_eq!((waited.0, waited.2, waited.5), (0, 1, None));
    }
}
