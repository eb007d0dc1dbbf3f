//! Deciding here, and telling the others afterwards.
