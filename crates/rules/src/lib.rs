//! From a request to the plan of limits that it must pass.
