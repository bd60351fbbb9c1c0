"""Control of other members and of the space: pause, restart, grants, invitations."""
