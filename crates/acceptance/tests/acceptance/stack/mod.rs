//! The host stack and the kernel as its peer, over a TAP device: `sidestep stack …`.

mod link;
mod scene;
mod transfers;

pub(crate) use scene::{
    FAR, KERNEL, KERNEL_V4, OURS, OURS_V4, PATIENCE, StackScene, address_in, are_equal, output, succeeds,
};
