//! Tests of upstreams.
