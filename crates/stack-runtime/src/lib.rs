//! `stack` over a device: sockets that block, in one program, without the network of the kernel.
