//! Tests of cutting and naming chunks through the public interface. One program, because linking takes
//! longer than running.

mod cuts;
mod golden;
mod learned_key;
