"""What programs in a space share: joining and staying, chats for them, what members offer, sure delivery."""
