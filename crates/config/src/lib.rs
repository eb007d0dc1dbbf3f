//! What a person types, turned into limits, with every error at once and each in its place.
