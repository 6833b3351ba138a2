//! The commit protocol as a model.
