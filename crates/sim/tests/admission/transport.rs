//! A transport to a store in this process that is up, down, or late.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use redis::Value;
use sluicegate::Timestamp;
use sluicegate_redis::{CallError, Transport, TransportCall};
use sluicegate_sim::store::Store;
use tokio::sync::watch;

use crate::model::StoreState;

/// Longer than a request waits for its reply.
const LATE: Duration = Duration::from_millis(700);

#[derive(Debug)]
pub(crate) struct FakeTransport {
    store: Mutex<Store>,
    state: Mutex<StoreState>,
    now: Timestamp,
}

impl FakeTransport {
    pub(crate) fn new(now: Timestamp) -> Arc<Self> {
        let store = Mutex::new(Store::new().unwrap());
        Arc::new(Self { store, state: Mutex::new(StoreState::Up), now })
    }

    pub(crate) fn set(&self, state: StoreState) {
        *self.state.lock() = state;
    }
}

impl Transport for FakeTransport {
    fn call(&self, sent: TransportCall) -> BoxFuture<'static, Result<Value, CallError>> {
        let state = *self.state.lock();
        if state == StoreState::Down {
            return Box::pin(async { Err(CallError::Down) });
        }
        let TransportCall { script, keys, args } = sent;
        let reply = self.store.lock().run(script, &keys, &args, self.now.as_micros());
        Box::pin(async move {
            if state == StoreState::Late {
                tokio::time::sleep(LATE).await;
            }
            reply.map_err(|why| CallError::Refused(why.into()))
        })
    }

    fn epoch(&self) -> u64 {
        0
    }

    fn changed(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
}
