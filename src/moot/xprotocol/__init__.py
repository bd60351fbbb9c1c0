"""XProtocol: signed and sealed events between organisations. README.md beside this file shows the floors."""
